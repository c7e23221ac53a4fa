#!/usr/bin/env python3
"""Writes tests/golden/chat_template_hashes.jsonl: what jinja2 makes of every fetched chat template.

Each of the templates in models/vocabularies/templates (tools/fetch_vocabularies.sh) renders each conversation of
tests/golden/chat_conversations.jsonl. One JSON object a line: {"template", "errors", "results"}. The results, one for each
conversation, are separated by spaces: the FNV-1a hash of the text (64 bits, of which the first 12 hexadecimal digits),
"!" for an error, or "!2" for a raise_exception() with the message errors[2].

    tools/make_template_hashes.py
    tools/make_template_hashes.py --show Qwen-Qwen3-0.6B.jinja "two calls"     prints one text

Made with Jinja2 3.1.6, Python 3.11, in the environment that the package transformers sets up.
"""

import argparse
import datetime
import json
import pathlib

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOW = datetime.datetime(2026, 3, 5, 14, 7, 9)


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %} marks what the assistant said; it writes its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("write"), [], [], body).set_lineno(line)

    def write(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


def render(template, conversation):
    """The text, or an error: its message where the template raised it, otherwise None."""
    try:
        return template.render(
            conversation.get("variables", {}),
            messages=conversation["messages"],
            tools=conversation.get("tools"),
            documents=conversation.get("documents"),
            add_generation_prompt=conversation.get("generate", True),
            bos_token="<s>",
            eos_token="</s>",
        ), False
    except TemplateError as error:
        return (error.message if type(error) is TemplateError else None), True
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None, True


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"[:12]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", type=pathlib.Path, default=ROOT / "models" / "vocabularies" / "templates")
    parser.add_argument("--output", default=ROOT / "tests" / "golden" / "chat_template_hashes.jsonl")
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "CONVERSATION"))
    arguments = parser.parse_args()

    lines = (ROOT / "tests" / "golden" / "chat_conversations.jsonl").read_text(encoding="ascii").splitlines()
    conversations = [json.loads(line) for line in lines]
    if arguments.show:
        name, wanted = arguments.show
        template = environment().from_string((arguments.templates / name).read_text(encoding="utf-8"))
        for conversation in conversations:
            if conversation["name"] == wanted:
                print(*render(template, conversation)[:1], end="")
        return

    count = 0
    with open(arguments.output, "w", encoding="ascii") as output:
        for path in sorted(arguments.templates.glob("*.jinja")):
            template = environment().from_string(path.read_text(encoding="utf-8"))
            errors, results = [], []
            for conversation in conversations:
                text, is_error = render(template, conversation)
                if is_error and text is not None and text not in errors:
                    errors.append(text)
                is_raised = is_error and text is not None
                results.append(f"!{errors.index(text)}" if is_raised else "!" if is_error else fnv1a(text.encode()))
                count += 1
            line = {"template": path.name, "errors": errors, "results": " ".join(results)}
            output.write(json.dumps(line, separators=(",", ":")) + "\n")
    print(f"{arguments.output}: {count} renderings")


if __name__ == "__main__":
    main()
