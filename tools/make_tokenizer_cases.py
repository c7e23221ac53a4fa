#!/usr/bin/env python3
"""Writes tests/golden/tokenizer_smollm2.jsonl: texts and the ids that the Python package `tokenizers` gives them.

One JSON object a line: {"text": ..., "ids": [...], "parsed": [...]}. ids: control tokens stay text; parsed (only where
it differs): control tokens are found. "lossy": true where decoding the ids does not give the text back, because the
vocabulary has no symbol for one of its bytes.

Made with tokenizers 0.23.3, gguf 0.19.0, numpy 2.4.6, Python 3. The same versions give the same file.
"""

import argparse
import json
import pathlib
import random

from make_tokenizer_json import CONTROL, build, from_gguf
from gguf import GGUFReader

ROOT = pathlib.Path(__file__).resolve().parent.parent

SENTENCES = {
    "English": "It's the reader's choice: we'll see whether they've read it, or I'd stop; you're sure I'm not?",
    "German": "Die Größe des Gefäßes übertraf alle Erwartungen, sagte Jürgen äußerst höflich.",
    "French": "L'été dernier, où étiez-vous ? Là-bas, près de l'église, ça c'est sûr.",
    "Spanish": "¿Cuántos años tiene el niño? ¡Qué pregunta más rara!",
    "Portuguese": "A inflação não é tão má quanto parece, disse o coração do João.",
    "Italian": "Perché no? La città è più bella così, però fa freddo.",
    "Polish": "Zażółć gęślą jaźń, powiedział źrebak do żółwia.",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Hungarian": "Árvíztűrő tükörfúrógép, mondta a bölcs öreg.",
    "Turkish": "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ışık.",
    "Vietnamese": "Tiếng Việt có nhiều dấu thanh: à, ả, ã, á, ạ, ằ, ẳ, ẵ, ắ, ặ.",
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ukrainian": "Щастям б'єш жук їх глицю в фон й ґедзь пріч.",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, είπε ο Όμηρος.",
    "Hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא חברה.",
    "Arabic": "نصٌّ حكيمٌ له سرٌّ قاطعٌ وذو شأنٍ عظيمٍ مكتوبٌ على ثوبٍ أخضر.",
    "Persian": "می‌خواهم بدانم که این نیم‌فاصله چه می‌شود؟ ۱۲۳۴۵",
    "Hindi": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। १२३",
    "Bengali": "আমার সোনার বাংলা, আমি তোমায় ভালোবাসি। ১২৩",
    "Tamil": "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்.",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓",
    "Georgian": "საქართველო მშვენიერი ქვეყანაა, ნახეთ.",
    "Armenian": "Բարեւ աշխարհ, ինչպե՞ս ես այսօր։",
    "Amharic": "ሰላም ለዓለም ሁሉ፣ እንዴት ናችሁ?",
    "Chinese": "我能吞下玻璃而不伤身体。今天是二〇二四年三月十五日，气温２３度。",
    "Japanese": "いろはにほへと ちりぬるを。カタカナも漢字も、ぜんぶ混ぜてみた！ﾊﾝｶｸ",
    "Korean": "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "Swahili": "Jua linawaka sana leo, lakini mvua itanyesha kesho.",
    "Icelandic": "Kæmi ný öxi hér, ykist þjófum nú bæði víl og ádrepa.",
    "Yoruba": "Ẹ kú àárọ̀, báwo ni nǹkan ṣe ń lọ?",
}

CODE = [
    "def f(x: int) -> str:\n    return f\"{x!r:>10}\" if x else 'none'\n",
    "#include <vector>\n\ntemplate <typename T>\nstruct S { T* p = nullptr; };  // ok\n",
    "for (let i = 0; i < 10; i++) {\n\tconsole.log(`${i} => ${i ** 2}`);\n}\n",
    "SELECT a.id, COUNT(*) FROM a LEFT JOIN b ON a.id=b.a_id WHERE b.x IS NULL GROUP BY 1;",
    '{"k": [1, 2.5e-3, true, null], "s": "\\u00e9\\n"}',
    "<div class=\"a b\" id='c'>&nbsp;&lt;x&gt;</div>\r\n<!-- end -->\r\n",
    "x\t=\t0x1F;\t\t/* tab */\n\n\n\ty = ~x ^ 0b101;",
    "$ ls -la | grep '^d' | awk '{print $9}' && echo \"done\" >/dev/null 2>&1",
    "\\begin{equation}\n  e^{i\\pi} + 1 = 0\n\\end{equation}",
    "fn main() { let v: Vec<_> = (0..10).map(|x| x * x).collect(); println!(\"{:?}\", v); }",
    "if __name__ == '__main__':\n        main()\n    # odd indent\n  pass",
    "a.b.c->d::e[f](g){h};i+=j--;k<<=2;l??m?.n!",
]

SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|>",
    "<|im_end|><|im_end|>",
    " <|im_end|> ",
    "<|im_end",
    "|im_end|>",
    "<|im_<|im_end|>end|>",
    "<|endoftext|>text<|endoftext|>",
    "<repo_name>a/b<file_sep>c.py\n<reponame>",
    "<filename><gh_stars>100<issue_start><issue_comment>x<issue_closed>",
    "<jupyter_start><jupyter_text>t<jupyter_code>c<jupyter_output>o<jupyter_script>s<empty_output>",
    "<|IM_END|> <| im_end |> <im_end> <<|im_end|>>",
    "</s><s>[INST]<|eot_id|><end_of_turn>",
    "<0x0A><unk>\u0120\u010aĠt",
    "don't<|im_start|>'ll  <|im_end|>  x",
    "<|im_start|>\n\n<|im_end|>\n \n",
]

EMOJI = [
    "😀😃😄 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️ ☺︎ ☺️ 1️⃣ #️⃣",
    "🧑🏿‍🚀🚀 to the 🌕!",
    "a👋b👋 c 👋 d",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿 flag",
    "👩‍❤️‍💋‍👨" * 3,
]

MARKS = [
    "e\u0301 E\u0301 n\u0303 a\u0308\u0304 o\u0302\u0309",
    "Z\u0351\u036b\u0343\u036a\u0302\u0310a\u0321\u034e\u0309l\u0335\u0321go",
    "\u0301\u0301\u0301",
    " \u0301a",
    "cafe\u0301 café",
    "\u0e01\u0e33\u0e49 \u0b95\u0bcd\u0bb7",
    "\u1100\u1161\u11a8 각 \u1112\u1161\u11ab",
    "i\u0307 İ ı ſ ß ẞ ǆ ǅ",
]

SPACES = [
    " ", "  ", "   ", " a", "  a", "   a", "a ", "a  ", "a   b", "\t", "\t\t", "\ta", "\t a", " \ta", "\n", "\n\n", "\n\n\n",
    "\na", "\n a", "\n\n a", " \n a", "a\n", "a \n", "a\n \nb", "\r", "\r\n", "\r\n\r\n", "a\r\nb\r\n", "a\r\rb", "\n\r", " \r\n ",
    "\u00a0", "\u00a0a", " \u00a0 a", "\u3000\u3000段", "a\u2003b\u2028c\u2029d", "\u200b\u200da", "\u180ea \u180e b", "\ufeffa",
    "\u0085a\u0085 b", "\x0b\x0c\x1c\x1d\x1e\x1f", "\x1ca \x1fb", " " * 64, "\t" * 33, "\n" * 50, " " * 100 + "a", "a" + " " * 77 + "b",
    "\n" * 20 + "x" + "\n" * 7, " \t \t \t x", ("    " * 6 + "x\n") * 4, " " * 1000, "\t" * 500 + "e",
]

NUMBERS = [
    "0", "12", "123", "1234567890", " 1", "  1", "1 2  3   4", "3.14159", "-1.5e-10", "1,234,567.89", "a1b2c3", "1a", "1st 2nd", "0x7fff",
    "2024-03-15T12:34:56.789Z", "٠١٢٣", "१२३", "½ ¼ ²³ ₄", "Ⅷ ⅷ", "①②③ ㊿", "一二三", "１２３", "v1.2.3-rc4", "1'000'000", "$12.50 €3,20 £7",
    "192.168.0.1:8080", "+49 (0)30 123456", "𝟘𝟙𝟚 𝟬𝟭", "10^100",
]

PUNCTUATION = [
    "'", "''", "'s", "'S", "'ll've", "'re'", "it's It'S IT'S it’s", "'tis 'twas", " 's", "'d've", "!", "!!", "?!?!", "...", " ...", "…", "—",
    "a—b – c", "(a) [b] {c} <d>", "\"quoted\" 'single' «guillemets» „tief“", "@user #tag https://example.org/a?b=c&d=%20#e", "a_b__c",
    "=====", "-" * 80, "*" * 33 + "a", "/*/*/*", "~~~~", "\\n\\t", "` `` ```", "™ © ® ° § ¶", "∀x∈ℝ: ⌈x⌉ ≠ ⌊x⌋ → ∞", "├── └── │", "e.g., i.e.; etc.",
]

PLANES = ["\U0001d400\U0001d401", "\U00020000\U0002a6d6", "\U000e0041", "\U000f0000", "\U00040000", "\U0010fffd", "\ud7ff\ue000", "\ufffd", "\uffff"]


def one_character_texts():
    low = [chr(i) for i in range(0x20)] + list("aZ0~\x7f")
    return low + list("\x80\x85\xa0\xadÿĀ\u0300\u0600\u0900\u200b\u2028\u3000\ue000\ufeff字ก가😀\U000e0001\U0010ffff")


def mixed_texts(count):
    """Random walks over all of the above, the same ones every time."""
    source = random.Random(20240315)
    pieces = list(SENTENCES.values()) + CODE + SPECIAL + EMOJI + MARKS + SPACES[:40] + NUMBERS + PUNCTUATION
    for _ in range(count):
        text = ""
        for _ in range(source.randint(2, 6)):
            piece = source.choice(pieces)
            begin = source.randrange(len(piece)) if len(piece) > 40 else 0
            text += piece[begin : begin + 40] + source.choice(["", "", " ", "\n", "  "])
        yield text


def texts():
    prose = (ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf.LICENSE").read_text(encoding="utf-8")
    groups = [
        ["", "a", "hello", "Hello world", " Hello  World ", "The quick brown fox jumps over the lazy dog."],
        SENTENCES.values(), CODE, SPECIAL, EMOJI, MARKS, SPACES, NUMBERS, PUNCTUATION, PLANES, one_character_texts(),
        ["a" * 300, "ab" * 200, "aA" * 100, "the" * 100, "é" * 200, "\u0301" * 200, "字" * 150, "😀" * 60, "!?" * 100, "x" * 3 + "y" * 500],
        [prose[i : i + 600] for i in range(0, 3000, 600)],
        mixed_texts(120),
    ]
    seen = dict.fromkeys(text for group in groups for text in group)
    return list(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--output", default=ROOT / "tests" / "golden" / "tokenizer_smollm2.jsonl")
    arguments = parser.parse_args()

    fields = GGUFReader(arguments.model).fields
    tokens, types, merges = (fields["tokenizer.ggml." + key].contents() for key in ("tokens", "token_type", "merges"))
    parsing = from_gguf(arguments.model)
    plain = build(tokens, [1 if kind == CONTROL else kind for kind in types], merges, fields["tokenizer.ggml.pre"].contents())

    cases = texts()
    with open(arguments.output, "w", encoding="ascii") as output:
        for text in cases:
            case = {"text": text, "ids": plain.encode(text, add_special_tokens=False).ids}
            parsed = parsing.encode(text, add_special_tokens=False).ids
            if parsed != case["ids"]:
                case["parsed"] = parsed
            if plain.decode(case["ids"], skip_special_tokens=False) != text:
                case["lossy"] = True
            output.write(json.dumps(case, separators=(",", ":")) + "\n")
    print(f"{arguments.output}: {len(cases)} texts")


if __name__ == "__main__":
    main()
