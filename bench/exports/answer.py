"""Answers the questions of a split with an exported version, greedily, and prints the results as `fulgurite grade` reads them.

    answer.py peft|merged|llama.cpp BASE EXPORTED QUESTIONS

The messages are those of the writer of examples/sql, and the query is taken out of the reply as in its control.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/sql"))
import controls

TOKENS = 192


def transformers(name, base, exported):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base if name == "peft" else exported, dtype=torch.float32)
    if name == "peft":
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, exported)
    model.eval()

    def reply(messages):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            out = model.generate(**prompt, max_new_tokens=TOKENS, do_sample=False, repetition_penalty=1.0)
        return tokenizer.decode(out[0][prompt.input_ids.shape[1] :], skip_special_tokens=True)

    return reply


def llama(exported):
    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = str(next(Path(exported).glob("*.gguf")) if Path(exported).is_dir() else exported)
    p.n_ctx, p.n_gpu_layers, p.n_parallel, p.use_jinja = 4096, 0, 1, True
    server = xllamacpp.Server(p)

    def reply(messages):
        body = {"messages": messages, "temperature": 0, "max_tokens": TOKENS, "cache_prompt": True}
        request = urllib.request.Request(
            server.listening_address + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]

    return reply


def main(name, base, exported, questions):
    reply = llama(exported) if name == "llama.cpp" else transformers(name, base, exported)
    for i, row in enumerate(json.loads(Path(questions).read_text())):
        database = Path(questions).parent / "database" / row["db_id"] / (row["db_id"] + ".sqlite")
        asked = controls.messages(0, {"input": row["question"], "metadata": {"database": str(database)}})
        said = reply([{"role": role, "content": text} for role, text in asked])
        print(json.dumps({"id": str(i), "result": controls.answer(said)}), flush=True)
    os._exit(0)  # llama.cpp's threads sometimes keep a process from ending


if __name__ == "__main__":
    main(*sys.argv[1:])
