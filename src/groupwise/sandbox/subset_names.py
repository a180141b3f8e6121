"""Names that mean the same in Monty and in CPython; see ``subset``."""


def _read(words: str) -> frozenset[str]:
    return frozenset(words.split())


NODES = _read(
    "Module FunctionDef AsyncFunctionDef Return Assign AugAssign AnnAssign For While If Expr Pass "
    "Break Continue Assert Import ImportFrom alias arguments arg keyword Await BoolOp BinOp "
    "UnaryOp Lambda IfExp Dict Set List Tuple ListComp SetComp GeneratorExp "
    "comprehension Compare Call Constant Attribute Subscript Slice Name Starred JoinedStr "
    "FormattedValue Raise Load Store And Or Add Sub Mult Div Mod Pow LShift RShift BitOr BitXor "
    "BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn"
)

BUILTINS = _read(
    "abs all any bin bool chr dict divmod float hex int isinstance len list max min oct ord pow "
    "print range round sorted str sum tuple set frozenset enumerate filter map reversed zip "
    "ValueError TypeError IndexError KeyError ZeroDivisionError"
)

# They give iterators in CPython and lists in Monty.
LAZY = _read("enumerate filter map reversed zip")
# They use up what they are given; the second ones may stop before its end.
TAKE_ALL = _read("list tuple sorted sum max min dict join extend")
TAKE_SOME = _read("any all zip enumerate map")
UNORDERED_TAKERS = _read("len sorted min max any all bool")

MUTATORS = _read(
    "append appendleft extend insert remove pop popleft popitem clear sort reverse add discard "
    "update setdefault rotate subtract"
)

ATTRIBUTES = MUTATORS | _read(
    "index count copy get items keys values lower upper strip lstrip rstrip split rsplit "
    "splitlines join replace find rfind startswith endswith isdigit isalpha isalnum isupper "
    "islower isspace capitalize swapcase zfill ljust rjust center"
)

MODULES = {
    "asyncio": _read("gather"),
    "collections": _read("deque"),
    "functools": _read("reduce"),
    "math": _read(
        "ceil comb cos degrees dist e exp fabs factorial floor fmod gcd hypot isclose isqrt lcm "
        "log log10 log2 perm pi pow prod radians sin sqrt tan trunc"
    ),
    "typing": _read("Any Callable Dict Iterable List Optional Sequence Set Tuple Union"),
}
