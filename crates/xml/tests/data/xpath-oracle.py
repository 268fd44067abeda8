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
PREFIXES = {"p": "urn:p", "q": "urn:q"}


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


ELEMENTS = ["a", "b", "c", "d", "p:e", "q:a"]
ATTRIBUTES = ["x", "y", "p:x", "q:y"]
TEXTS = ["1", "2", "10", "-3.5", "0", " 7 ", "abc", "b", "x y", "é", "a  b", "&lt;&amp;", "007"]
LANGUAGES = ["en", "en-GB", "DE", "fr"]


class Documents:
    """Random documents: small and mixed, deep, or wide."""

    def __init__(self, rng):
        self.rng = rng
        self.budget = 0
        self.ids = 0

    def document(self):
        rng = self.rng
        shape = rng.choice(["mixed", "mixed", "mixed", "deep", "wide"])
        self.budget = rng.randint(3, 40) if shape == "mixed" else rng.randint(20, 60)
        self.ids = 0
        before = rng.choice(["", "", "<!--before-->", "<?t one?>"])
        after = rng.choice(["", "", "<!--after-->", "<?u after?>"])
        namespaces = ' xmlns:p="urn:p" xmlns:q="urn:q"'
        if rng.random() < 0.2:
            namespaces += ' xmlns="urn:default"'
        return before + self.element(shape, 0, namespaces) + after

    def element(self, shape, depth, namespaces=""):
        rng = self.rng
        self.budget -= 1
        name = rng.choice(ELEMENTS)
        attributes = namespaces
        if not namespaces and rng.random() < 0.08:
            extra = ['xmlns:r="urn:r"', 'xmlns="urn:p"', 'xmlns=""', 'xmlns:p="urn:other"']
            attributes += " " + rng.choice(extra)
        for attribute in rng.sample(ATTRIBUTES, rng.choice([0, 0, 1, 1, 2, 3])):
            attributes += f' {attribute}="{rng.choice(TEXTS)}"'
        if rng.random() < 0.1:
            attributes += f' xml:lang="{rng.choice(LANGUAGES)}"'
        if rng.random() < 0.2:
            attributes += f' xml:id="i{self.ids}"'
            self.ids += 1
        children = []
        fan = {
            "mixed": rng.randint(0, 5),
            "deep": 1 + (rng.random() < 0.2),
            "wide": 40 if depth == 0 else 1,
        }
        for _ in range(fan[shape]):
            if self.budget > 0 and depth < 40:
                children.append(self.child(shape, depth))
        return f"<{name}{attributes}>{''.join(children)}</{name}>"

    def child(self, shape, depth):
        kind = self.rng.random()
        if kind < 0.6 or shape == "deep":
            return self.element(shape, depth + 1)
        if kind < 0.85:
            return self.rng.choice(TEXTS)
        if kind < 0.9:
            return f"<![CDATA[{self.rng.choice(['1', '<b>', 'x'])}]]>"
        if kind < 0.95:
            return f"<!--{self.rng.choice(['c', '1', 'two words'])}-->"
        return self.rng.choice(["<?t one?>", "<?u 2?>", "<?t three?>"])


AXES = (
    "ancestor ancestor-or-self attribute child descendant descendant-or-self following "
    "following-sibling namespace parent preceding preceding-sibling self"
).split()
NUMBERS = "0 1 2 3 1.5 .5 2. 10 100 0.25 1000000 0.0000001 123456789012 2147483648".split()
STRINGS = ["''", "'a'", "'1'", '"b"', "' 7 '", "'en'", "'i1 i2 i0'", "'abc'", "'-3.5'", "'é'"]
STRINGS.append("'xyz'")


POSITIONS = ["1", "2", "3", "last()", "last() div 2"]
ARITHMETIC = ["+", "-", "*", "div", "mod"]
ABOUT_CONTEXT = ["string()", "name()", "local-name()", "namespace-uri()", "normalize-space()"]


class Expressions:
    """Random expressions of each type."""

    def __init__(self, rng):
        self.rng = rng

    def expression(self):
        kind = self.rng.random()
        if kind < 0.5:
            return self.nodes(3)
        return self.rng.choice([self.number, self.string, self.boolean, self.any])(3)

    def any(self, depth):
        return self.rng.choice([self.nodes, self.number, self.string, self.boolean])(depth)

    def nodes(self, depth):
        rng = self.rng
        kind = rng.random()
        if depth > 0 and kind < 0.08:
            return f"{self.nodes(depth - 1)} | {self.nodes(depth - 1)}"
        if depth > 0 and kind < 0.16:
            return self.after(f"({self.nodes(depth - 1)})" + self.predicates(depth - 1), depth)
        if depth > 0 and kind < 0.2:
            return self.after(f"id({self.any(depth - 1)})", depth)
        start = rng.choice(["", "/", "//", "//", "//", ".//"])
        if start == "/" and rng.random() < 0.1:
            return "/"
        steps = [self.step(depth)]
        while rng.random() < 0.5 and len(steps) < 5:
            steps += [rng.choice(["/", "/", "//"]), self.step(depth)]
        return start + "".join(steps)

    def after(self, base, depth):
        if self.rng.random() < 0.5:
            return base
        return base + self.rng.choice(["/", "//"]) + self.step(depth - 1)

    def step(self, depth):
        rng = self.rng
        kind = rng.random()
        if kind < 0.06:
            return "."
        if kind < 0.14:
            return ".."
        if kind < 0.24:
            return "@" + rng.choice(ATTRIBUTES + ["*", "p:*", "xml:id"]) + self.predicates(depth)
        axis = "" if kind < 0.5 else rng.choice(AXES) + "::"
        return axis + self.test() + self.predicates(depth)

    def test(self):
        rng = self.rng
        return rng.choice(
            ELEMENTS
            + ["*"] * 8
            + ["node()"] * 8
            + ["text()", "text()", "comment()", "p:*", "x", "p", "xml"]
            + ["processing-instruction()", "processing-instruction('t')"]
        )

    def predicates(self, depth):
        text = ""
        while depth > 0 and self.rng.random() < 0.25:
            text += f"[{self.predicate(depth - 1)}]"
        return text

    def predicate(self, depth):
        rng = self.rng
        kind = rng.random()
        if kind < 0.2:
            return rng.choice(["1", "2", "3", "last()", "last() - 1", "position() = 2", "0", "1.5"])
        if kind < 0.35:
            comparison = self.comparison()
            return f"position() {comparison} {rng.choice(POSITIONS)}"
        if kind < 0.5:
            return self.nodes(depth)
        return self.any(depth) if depth > 0 else self.nodes(0)

    def comparison(self):
        return self.rng.choice(["=", "!=", "<", "<=", ">", ">="])

    def number(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            return rng.choice(NUMBERS)
        down = depth - 1
        return rng.choice(
            [
                lambda: f"count({self.nodes(down)})",
                lambda: f"sum({self.nodes(down)})",
                lambda: f"number({self.any(down)})",
                lambda: f"string-length({self.any(down)})",
                lambda: f"floor({self.any(down)})",
                lambda: f"ceiling({self.any(down)})",
                lambda: f"round({self.any(down)})",
                lambda: f"-{self.atom(down)}",
                lambda: "position()",
                lambda: "last()",
                lambda: "number()",
                lambda: "string-length()",
                lambda: f"{self.atom(down)} {rng.choice(ARITHMETIC)} {self.atom(down)}",
                lambda: " ".join(
                    [self.atom(down), rng.choice(ARITHMETIC[:3]), self.atom(down), "-"]
                    + [self.atom(down)]
                ),
            ]
        )()

    def atom(self, depth):
        return self.rng.choice([f"({self.any(depth)})", self.rng.choice(NUMBERS), self.nodes(0)])

    def string(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice(STRINGS)
        down = depth - 1
        any = self.any
        return rng.choice(
            [
                lambda: f"string({any(down)})",
                lambda: f"concat({any(down)}, {any(down)})",
                lambda: f"concat({any(down)}, '+', {any(down)})",
                lambda: f"substring-before({any(down)}, {self.string(0)})",
                lambda: f"substring-after({any(down)}, {self.string(0)})",
                lambda: f"substring({any(down)}, {self.number(down)})",
                lambda: f"substring({any(down)}, {self.number(down)}, {self.number(down)})",
                lambda: f"normalize-space({any(down)})",
                lambda: f"translate({any(down)}, 'abc12', 'BA')",
                lambda: f"name({self.nodes(down)})",
                lambda: f"local-name({self.nodes(down)})",
                lambda: f"namespace-uri({self.nodes(down)})",
                lambda: rng.choice(ABOUT_CONTEXT),
            ]
        )()

    def boolean(self, depth):
        rng = self.rng
        if depth <= 0:
            return rng.choice(["true()", "false()"])
        down = depth - 1
        any = self.any
        operand = lambda: rng.choice([f"({any(down)})", self.nodes(down), self.atom(down)])
        return rng.choice(
            [
                lambda: f"{operand()} {self.comparison()} {operand()}",
                lambda: f"{operand()} {self.comparison()} {operand()}",
                lambda: f"{self.nodes(down)} {self.comparison()} {self.nodes(down)}",
                lambda: " ".join(
                    [operand(), self.comparison(), operand(), self.comparison(), operand()]
                ),
                lambda: f"{operand()} and {operand()}",
                lambda: f"{operand()} or {operand()} and {operand()}",
                lambda: f"not({any(down)})",
                lambda: f"boolean({any(down)})",
                lambda: f"starts-with({any(down)}, {self.string(0)})",
                lambda: f"contains({any(down)}, {any(down)})",
                lambda: f"lang({self.string(0)})",
            ]
        )()


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


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


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
