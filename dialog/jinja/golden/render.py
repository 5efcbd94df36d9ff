"""Renders templates with Jinja2, set up as transformers' apply_chat_template does.

    render.py FOLDER EXPECTED.json        renders FOLDER/*.jinja with every case of
                                          cases.json and writes for each template a
                                          list with, for each case, the first 16
                                          hexadecimal digits of the SHA-256 of the
                                          text, or null where Python refuses it
    render.py FOLDER EXPECTED.json TEXTS  writes the texts, too, as TEXTS/template.json
    render.py SNIPPETS.json               writes what each snippet renders to into
                                          the file
"""

import copy
import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 11, 21, 7, 5, 9)


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what an assistant says; its body is a call block."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_say"), [], [], body).set_lineno(line)

    def _say(self, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        members = dict(*args, **kwargs)
        for name in members:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, members)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=NOW.strftime, dict=Dict(), namespace=Namespace)
    return env


def render(source, cases):
    """Gives a text or an exception for each case."""
    try:
        template = environment().from_string(source)
    except Exception as error:
        return {name: error for name in cases}
    made = {}
    for name, variables in cases.items():
        try:
            made[name] = template.render(**variables)
        except Exception as error:
            made[name] = error
    return made


def digest(text):
    return None if isinstance(text, Exception) else hashlib.sha256(text.encode()).hexdigest()[:16]


def render_folder(folder, expected, texts):
    here = pathlib.Path(__file__).parent
    cases = {c["name"]: c["variables"] for c in json.loads((here / "cases.json").read_text(encoding="utf-8"))}
    lines = []
    for path in sorted(folder.glob("*.jinja")):
        made = render(path.read_bytes().decode(), cases)
        digests = [digest(text) for text in made.values()]
        lines.append(json.dumps(path.stem) + ": " + json.dumps(digests, separators=(",", ":")))
        if texts:
            shown = {n: {"error": f"{type(t).__name__}: {t}"} if isinstance(t, Exception) else t for n, t in made.items()}
            (texts / f"{path.stem}.json").write_text(json.dumps(shown, ensure_ascii=False, indent=1), encoding="utf-8")
    expected.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def render_snippets(path):
    """Renders each snippet of a file with the variables of the file.

    A snippet is a list: its source, and what becomes of it (a text, or null where
    Python refuses it).
    """
    file = json.loads(path.read_text(encoding="utf-8"))
    lines = []
    for source, *_ in file["snippets"]:
        # Some filters of Jinja change what they are given.
        text = render(source, {"": copy.deepcopy(file["variables"])})[""]
        lines.append(json.dumps([source, None if isinstance(text, Exception) else text], ensure_ascii=False))
    variables = json.dumps(file["variables"], ensure_ascii=False)
    path.write_text('{"variables": ' + variables + ',\n"snippets": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


def main():
    target = pathlib.Path(sys.argv[1])
    if target.is_dir():
        render_folder(target, pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    else:
        render_snippets(target)


if __name__ == "__main__":
    main()
