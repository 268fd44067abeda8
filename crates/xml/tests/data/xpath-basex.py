#!/usr/bin/env python3
"""Writes documents and XPath expressions with the answers of BaseX, which has XPath 3.1.

    xpath-basex.py SEED DOCUMENTS EXPRESSIONS_PER_DOCUMENT > table

The expressions are those to which 1.0 and later versions give the same value. The table is that of
xpath-oracle.py. Needs Java's compiler and Debian's package basex. Here a deviation is a place where
the later language or BaseX differs; docs/results/xml-xpath.md explains each.
"""

import pathlib
import random
import re
import subprocess
import sys
import tempfile

from xpath_generator import CommonExpressions, Documents, escape

JAR = "/usr/share/java/basex.jar"
SOURCE = pathlib.Path(__file__).with_name("XPathBaseX.java")


def deviations(expression, context, result):
    """Names the deviations that a case may touch; as few as the expression tells."""
    names = []
    if result == "number 0000000000000000" and re.search(r"-\(|\) \* \(", expression):
        names.append("integer-zero")
    if re.search(r"number\(.*string\((\(|not|boolean|true|false|lang|cont|starts)", expression):
        names.append("number-of-boolean")
    if "following::" in expression and (context > 0 or re.search("@|attribute::", expression)):
        names.append("following-of-attribute")
    if result == "error FOAR0001" and ") * (" in expression:
        names.append("product")
    if "ancestor-or-self::" in expression and ")[" in expression:
        names.append("ancestor-or-self")
    if "position()" in expression or "//" in expression and "last()" in expression:
        names.append("position")
    return ",".join(names)


def count_nodes(text):
    """Counts nodes as in document order, the document itself and attributes included."""
    text = re.sub(r"<!\[CDATA\[(.*?)\]\]>", lambda match: "x" * len(match[1]), text)
    count = 1
    for tag, _ in re.findall(r"(<[^>]*>)|([^<]+)", text):
        if tag.startswith("</"):
            continue
        count += 1
        if re.match(r"<[\w]", tag):
            attributes = re.findall(r' ([\w:]+)="', tag)
            count += sum(1 for name in attributes if not name.startswith("xmlns"))
    return count


def main():
    seed, documents, expressions = (int(argument) for argument in sys.argv[1:4])
    rng = random.Random(seed)
    make_document, make_expression = Documents(rng), CommonExpressions(rng)
    with tempfile.TemporaryDirectory() as home:
        java = ["java", f"-Dorg.basex.path={home}", "-cp", JAR, str(SOURCE)]
        pipe = subprocess.PIPE
        with subprocess.Popen(java, stdin=pipe, stdout=pipe, encoding="utf-8") as basex:
            print(f"# BaseX; xpath-basex.py {seed} {documents} {expressions}")
            for _ in range(documents):
                text = make_document.document()
                nodes = count_nodes(text)
                basex.stdin.write(f"doc\t{text}\n")
                print("doc", escape(text), sep="\t")
                for _ in range(expressions):
                    expression = make_expression.expression()
                    number = rng.randrange(nodes) if rng.random() < 0.6 else 0
                    basex.stdin.write(f"case\t{number}\t{expression}\n")
                    basex.stdin.flush()
                    result = basex.stdout.readline()
                    if not result:
                        sys.exit("BaseX has ended")
                    result = result.rstrip("\n")
                    known = deviations(expression, number, result)
                    print("case", number, escape(expression), result, known, sep="\t")
            basex.stdin.close()


main()
