#!/usr/bin/env python3
"""Writes documents and XPath expressions with the answers of libxml2.

    xpath-oracle.py SEED DOCUMENTS EXPRESSIONS_PER_DOCUMENT > table

libxml2 is called through ctypes, because its own node structures tell which node an answer is.
The table has tab-separated lines, with backslash escapes for newline, tab and backslash:

    doc     XML
    case    CONTEXT EXPRESSION RESULT [DEVIATIONS]

A node is its number in document order, attributes included, from 0 for the document. A namespace
node is ELEMENT@PREFIX. RESULT is `nodes …`, `boolean …`, `number BITS`, `string …` or
`error`.
DEVIATIONS names the places where libxml2 leaves the recommendation that the expression may touch;
docs/results/xml-xpath.md explains each. A case without any has to give the same answer.
"""

import ctypes
import random
import re
import struct
import sys
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_void_p

from xpath_generator import PREFIXES, Documents, Expressions, escape

xml = ctypes.CDLL("libxml2.so.2")


class Node(Structure):
    pass


Node._fields_ = [
    ("private", c_void_p),
    ("type", c_int),
    ("name", c_char_p),
    ("children", POINTER(Node)),
    ("last", c_void_p),
    ("parent", POINTER(Node)),
    ("next", POINTER(Node)),
    ("prev", c_void_p),
    ("doc", c_void_p),
    ("ns", c_void_p),
    ("content", c_void_p),
    ("properties", POINTER(Node)),
]


class Namespace(Structure):
    # In a node-set, `next` is the element that the namespace node belongs to.
    _fields_ = [("next", c_void_p), ("type", c_int), ("href", c_char_p), ("prefix", c_char_p)]


class NodeSet(Structure):
    _fields_ = [("count", c_int), ("max", c_int), ("table", POINTER(POINTER(Node)))]


class Object(Structure):
    _fields_ = [
        ("type", c_int),
        ("nodes", POINTER(NodeSet)),
        ("boolean", c_int),
        ("number", c_double),
        ("string", c_char_p),
    ]


class Context(Structure):
    _fields_ = [
        ("doc", c_void_p),
        ("node", POINTER(Node)),
        ("variables", c_int * 2),
        ("variable_hash", c_void_p),
        ("types", c_int * 2),
        ("type_table", c_void_p),
        ("functions", c_int * 2),
        ("function_hash", c_void_p),
        ("axes", c_int * 2),
        ("axis_table", c_void_p),
        ("namespaces", c_void_p),
        ("namespace_count", c_int),
        ("user", c_void_p),
        ("size", c_int),
        ("position", c_int),
    ]


xml.xmlReadMemory.restype = POINTER(Node)
xml.xmlReadMemory.argtypes = [c_char_p, c_int, c_char_p, c_char_p, c_int]
xml.xmlXPathNewContext.restype = POINTER(Context)
xml.xmlXPathNewContext.argtypes = [c_void_p]
xml.xmlXPathEvalExpression.restype = POINTER(Object)
xml.xmlXPathEvalExpression.argtypes = [c_char_p, c_void_p]
xml.xmlXPathRegisterNs.argtypes = [c_void_p, c_char_p, c_char_p]
xml.xmlXPathNodeSetSort.argtypes = [c_void_p]
xml.xmlXPathFreeObject.argtypes = [c_void_p]
xml.xmlXPathFreeContext.argtypes = [c_void_p]
xml.xmlFreeDoc.argtypes = [c_void_p]
SILENT = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)(lambda *_: None)
xml.xmlSetStructuredErrorFunc(None, SILENT)

ATTRIBUTE = 2
NAMESPACE_NODE = 18
PARSE_OPTIONS = 16384 | 64 | 32  # NOCDATA, NOWARNING, NOERROR


def address(pointer):
    return ctypes.cast(pointer, c_void_p).value


class Document:
    def __init__(self, text):
        data = text.encode()
        self.doc = xml.xmlReadMemory(data, len(data), None, b"UTF-8", PARSE_OPTIONS)
        if not self.doc:
            raise ValueError(text)
        self.nodes = []
        self.numbers = {}
        self.number(self.doc)
        self.context = xml.xmlXPathNewContext(self.doc)
        for prefix, uri in PREFIXES.items():
            xml.xmlXPathRegisterNs(self.context, prefix.encode(), uri.encode())

    def number(self, top):
        stack = [top]
        while stack:
            node = stack.pop()
            self.numbers[address(node)] = len(self.nodes)
            self.nodes.append(node)
            fields = node.contents
            if fields.type == 1:
                attribute = fields.properties
                while attribute:
                    self.numbers[address(attribute)] = len(self.nodes)
                    self.nodes.append(attribute)
                    attribute = attribute.contents.next
            children = []
            child = fields.children if fields.type in (1, 9) else None
            while child:
                children.append(child)
                child = child.contents.next
            stack.extend(reversed(children))

    def evaluate(self, number, expression):
        context = self.context.contents
        context.node, context.size, context.position = self.nodes[number], 1, 1
        found = xml.xmlXPathEvalExpression(expression.encode(), self.context)
        if not found:
            return "error"
        result = self.describe(found.contents)
        xml.xmlXPathFreeObject(found)
        return result

    def describe(self, value):
        if value.type == 1:
            names = []
            if value.nodes:
                xml.xmlXPathNodeSetSort(value.nodes)
                nodes = value.nodes.contents
                names = [self.describe_node(nodes.table[i]) for i in range(nodes.count)]
            # Sorted again: libxml2 leaves the order of namespace nodes open.
            names.sort(key=lambda name: (int(name.split("@")[0]), "@" in name, name))
            return " ".join(["nodes", *names])
        if value.type == 2:
            return "boolean true" if value.boolean else "boolean false"
        if value.type == 3:
            # The sign and payload of a NaN mean nothing.
            if value.number != value.number:
                return "number NaN"
            return "number " + struct.pack(">d", value.number).hex()
        return "string " + (value.string or b"").decode()

    def describe_node(self, node):
        if node.contents.type == NAMESPACE_NODE:
            namespace = ctypes.cast(node, POINTER(Namespace)).contents
            return f"{self.numbers[namespace.next]}@{(namespace.prefix or b'').decode()}"
        return str(self.numbers[address(node)])

    def close(self):
        xml.xmlXPathFreeContext(self.context)
        xml.xmlFreeDoc(self.doc)


def deviations(expression, text, on_attribute, result):
    """Names the deviations of libxml2 that a case may touch; as few as the expression tells."""
    names = []
    has_attributes = on_attribute or re.search("@|attribute::|namespace::", expression)
    if re.search(r"\bfollowing::", expression) and has_attributes:
        names.append("following-of-attribute")
    if re.search(r"\bpreceding::", expression) and re.search(r"(-->|\?>)$", text):
        names.append("preceding-first-child")
    # libxml2 takes another way for expressions without these three characters.
    if re.search(r"//\.(?!\.)", expression) and not re.search(r"[(@\[]", expression):
        names.append("abbreviated-self")
    if "namespace::" in expression:
        if 'xmlns=""' in text:
            names.append("undeclared-namespace")
        if "namespace::p:*" in expression:
            names.append("prefixed-namespace-test")
        if "[" in expression or not result.startswith("nodes"):
            names.append("namespace-order")
    if re.search(r"[0-9]{10}|0\.0000", expression):
        names.append("exponent")
    if re.search(r"\bid\((?!')", expression) or "id(' " in expression:
        names.append("id-after-space")
    if " div " in expression:
        names.append("digits")
    return ",".join(names)


def main():
    seed, documents, expressions = (int(argument) for argument in sys.argv[1:4])
    rng = random.Random(seed)
    make_document, make_expression = Documents(rng), Expressions(rng)
    version = ctypes.c_char_p.in_dll(xml, "xmlParserVersion").value.decode()
    print(f"# libxml2 {version}; xpath-oracle.py {seed} {documents} {expressions}")
    for _ in range(documents):
        text = make_document.document()
        document = Document(text)
        print("doc", escape(text), sep="\t")
        for _ in range(expressions):
            expression = make_expression.expression()
            number = rng.randrange(len(document.nodes)) if rng.random() < 0.6 else 0
            result = document.evaluate(number, expression)
            on_attribute = document.nodes[number].contents.type == ATTRIBUTE
            known = deviations(expression, text, on_attribute, result)
            print("case", number, escape(expression), escape(result), known, sep="\t")
        document.close()


main()
