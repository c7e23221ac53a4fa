"""The prompts of the golden file: (name, text). Chats are written through the model's own template."""

import jinja2

PLAIN = {
    "plain_river": "The river that runs through the old town is called",
    "plain_printing": "Before the printing press was invented, books were copied by hand, and",
    "plain_sequence": "1, 1, 2, 3, 5, 8, 13, 21,",
    "plain_code": "def factorial(n):\n    if n == 0:\n        return 1\n    return",
    "plain_french": "Le petit chat dort sur le",
    "plain_newlines": "Shopping list:\n\n- bread\n- milk\n-",
    "plain_unicode": "Zürich, São Paulo and 東京 are three",
    "plain_science": "Water boils at a lower temperature on a mountain because",
    "plain_story": "Once upon a time, a small lighthouse stood at the end of the world. Every night its keeper, an old woman "
    "named Mara, climbed the ninety-nine steps to light the lamp. One winter evening, when the storm was loudest, she",
    "plain_html": "<html>\n<head><title>Ferry timetable</title></head>\n<body>",
}

QUESTIONS = {
    "chat_capital": "What is the capital of France?",
    "chat_sum": "What is 17 plus 25?",
    "chat_rainbow": "Why does a rainbow have the shape of a bow?",
    "chat_haiku": "Write a haiku about rain.",
    "chat_list": "Name three uses of a paper clip.",
    "chat_translate": "Translate to Spanish: Good morning, my friend.",
    "chat_code": "Write a Python line that reverses a list.",
    "chat_spaces": "  Is   this\ttext  oddly\n\nspaced?  ",
    "chat_yes": "Answer with one word only: is the sky blue?",
    "chat_hello": "Hello",
}

SYSTEM_PROMPT = "You are the harbour master of a small port. Answer in one sentence."
SYSTEM_QUESTIONS = {
    "system_tide": "When may a ship of deep draught enter?",
    "system_fog": "What do you do in fog?",
    "system_name": "Who are you?",
}

MULTI_TURN = {
    "turns_colour": [
        ("user", "My favourite colour is green."),
        ("assistant", "Green is a calm colour."),
        ("user", "Which colour did I name?"),
    ],
}


def all_prompts(template_source):
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(template_source)

    def chat(*turns):
        messages = [{"role": role, "content": content} for role, content in turns]
        return template.render(messages=messages, add_generation_prompt=True)

    prompts = dict(PLAIN)
    for name, question in QUESTIONS.items():
        prompts[name] = chat(("user", question))
    for name, question in SYSTEM_QUESTIONS.items():
        prompts[name] = chat(("system", SYSTEM_PROMPT), ("user", question))
    for name, turns in MULTI_TURN.items():
        prompts[name] = chat(*turns)
    return prompts
