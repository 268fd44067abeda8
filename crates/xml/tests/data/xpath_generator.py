"""Random documents, and random XPath expressions on their nodes.

`Expressions` has all of XPath 1.0. `CommonExpressions` has what XPath 2.0 and later evaluate to
the same value, as far as the language decides that: no namespace axis, arguments of at most one
node where 2.0 asks for that, no comparison that 2.0 makes by another type, no numbers as strings
but whole ones.
"""

PREFIXES = {"p": "urn:p", "q": "urn:q"}

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


class CommonExpressions(Expressions):
    """Random expressions with the same value in XPath 1.0 and in later versions."""

    def expression(self):
        kind = self.rng.random()
        if kind < 0.5:
            return self.nodes(3)
        return self.rng.choice([self.number, self.string, self.boolean])(3)

    def nodes(self, depth):
        rng = self.rng
        kind = rng.random()
        if depth > 0 and kind < 0.04:
            return self.after(f"id({rng.choice(STRINGS)})", depth)
        # An id() of the other kind of argument is left out.
        while True:
            path = super().nodes(depth)
            if "id(" not in path or kind < 0.04:
                return path

    def one(self, depth):
        return f"({self.nodes(depth)})[1]"

    def numeric(self, depth):
        """Nodes whose text is a number; comments are strings in 2.0, and are left out."""
        untyped = "[not(self::comment() or self::processing-instruction())]"
        return f"({self.nodes(depth)}){untyped}[number() = number()]"

    def step(self, depth):
        while True:
            step = super().step(depth)
            if not step.startswith("namespace::"):
                return step

    def predicate(self, depth):
        rng = self.rng
        kind = rng.random()
        if kind < 0.2:
            return rng.choice(["1", "2", "3", "last()", "last() - 1", "position() = 2", "0", "1.5"])
        if kind < 0.35:
            return f"position() {self.comparison()} {rng.choice(['1', '2', '3', 'last()'])}"
        if kind < 0.6 or depth <= 0:
            return self.nodes(max(depth, 0))
        return rng.choice([self.number, self.boolean])(depth)

    def number(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            return rng.choice(["0", "1", "2", "3", "10", "100", "number('-3.5')", "number('.25')"])
        down = depth - 1
        return rng.choice(
            [
                lambda: f"count({self.nodes(down)})",
                lambda: f"sum({self.numeric(down)})",
                lambda: f"number({self.one(down)})",
                lambda: f"number({self.string(down)})",
                lambda: f"string-length({self.string(down)})",
                lambda: f"floor({self.number(down)})",
                lambda: f"ceiling({self.number(down)})",
                lambda: f"round({self.number(down)})",
                lambda: f"-({self.number(down)})",
                lambda: "position()",
                lambda: "last()",
                lambda: f"({self.number(down)}) {rng.choice('+-*')} ({self.number(down)})",
                lambda: f"number({self.one(down)}) {rng.choice(['div', 'mod'])} "
                f"number({self.one(down)})",
            ]
        )()

    def string(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice(STRINGS)
        down = depth - 1
        string, places = self.string, ["0", "1", "2", "3", "1.5", "10", "-1"]
        return rng.choice(
            [
                lambda: f"string({self.one(down)})",
                lambda: f"string({self.one(down)})",
                lambda: f"string(count({self.nodes(down)}))",
                lambda: f"string({self.boolean(down)})",
                lambda: f"concat({string(down)}, {string(down)})",
                lambda: f"concat({string(down)}, '+', {string(down)})",
                lambda: f"substring-before({string(down)}, {string(0)})",
                lambda: f"substring-after({string(down)}, {string(0)})",
                lambda: f"substring({string(down)}, {rng.choice(places)})",
                lambda: f"substring({string(down)}, {rng.choice(places)}, {rng.choice(places)})",
                lambda: f"normalize-space({string(down)})",
                lambda: f"translate({string(down)}, 'abc12', 'BA')",
                lambda: f"name({self.one(down)})",
                lambda: f"local-name({self.one(down)})",
                lambda: f"string(namespace-uri({self.one(down)}))",
                lambda: rng.choice(ABOUT_CONTEXT[:3]),
            ]
        )()

    def boolean(self, depth):
        rng = self.rng
        if depth <= 0:
            return rng.choice(["true()", "false()"])
        down = depth - 1
        equality = rng.choice(["=", "!="])
        truth = lambda: rng.choice([self.nodes, self.boolean, self.boolean])(down)
        return rng.choice(
            [
                lambda: f"({self.string(down)}) {equality} ({self.string(down)})",
                lambda: f"({self.number(down)}) {self.comparison()} ({self.number(down)})",
                lambda: f"({self.nodes(down)}) {equality} ({self.string(down)})",
                lambda: f"({self.nodes(down)}) {equality} ({self.nodes(down)})",
                lambda: f"{self.numeric(down)} {self.comparison()} ({self.number(down)})",
                lambda: f"({truth()}) and ({truth()})",
                lambda: f"({truth()}) or ({truth()}) and ({truth()})",
                lambda: f"not({truth()})",
                lambda: f"boolean({self.nodes(down)})",
                lambda: f"boolean({self.string(down)})",
                lambda: f"boolean({self.number(down)})",
                lambda: f"starts-with({self.string(down)}, {self.string(0)})",
                lambda: f"contains({self.string(down)}, {self.string(down)})",
                lambda: f"lang({self.string(0)})",
            ]
        )()


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
