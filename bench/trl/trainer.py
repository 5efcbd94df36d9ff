"""Steps of TRL's GRPOTrainer on a CPU with the writer of examples/sql, each a line of JSON.

    trainer.py MODEL QUESTIONS DIRECTORY STEPS TASKS SAMPLES f32|bf16

Rewards are those of Fulgurite's grader sql, of the query in the reply, as in examples/recipe/control.py.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/sql"))
import controls

base, questions, directory = sys.argv[1:4]
steps, tasks, samples = (int(word) for word in sys.argv[4:7])
bf16 = sys.argv[7] == "bf16"
rows = json.loads(Path(questions).read_text())
results = Path(questions).parent / "results.jsonl"


def prompt(row):
    database = Path(questions).parent / "database" / row["db_id"] / f"{row['db_id']}.sqlite"
    said = controls.messages(0, {"input": row["question"], "metadata": {"database": str(database)}})
    return [{"role": role, "content": text} for role, text in said]


def reward(completions, number, **_):
    """One file of results holds a task once, so each round grades one attempt at each task."""
    out, left = [0.0] * len(number), list(range(len(number)))
    while left:
        now = {}
        for i in left:
            now.setdefault(number[i], i)
        lines = [{"id": str(task), "result": controls.answer(completions[i][0]["content"])} for task, i in now.items()]
        results.write_text("".join(json.dumps(line) + "\n" for line in lines))
        graded = subprocess.run(["bin/fulgurite", "grade", f"spider:{questions}", results], check=True, capture_output=True, text=True).stdout
        for line in graded.splitlines():
            one = json.loads(line)
            out[now[int(one["id"])]] = one["reward"]
        left = [i for i in left if i not in now.values()]
    return out


class Clock(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.began = time.time()

    def on_log(self, _args, _state, _control, logs=None, **__):
        if logs and "reward" in logs:
            peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
            print(json.dumps({"seconds": time.time() - self.began, "reward": logs["reward"], "peak": peak}), flush=True)


micro = min(samples, 2)  # of 8 attempts at once, F32 needs more than 22 GB for the logits of 152,000 tokens
torch.set_num_threads(len(os.sched_getaffinity(0)))
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16 if bf16 else torch.float32),
    processing_class=AutoTokenizer.from_pretrained(base),
    reward_funcs=reward,
    train_dataset=Dataset.from_list([{"prompt": prompt(row), "number": i} for i, row in enumerate(rows)]),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    callbacks=[Clock()],
    args=GRPOConfig(
        output_dir=directory, use_cpu=True, bf16=bf16, fp16=False, max_steps=steps, logging_steps=1, save_strategy="no", report_to=[],
        disable_tqdm=True, learning_rate=1e-4, lr_scheduler_type="constant", max_grad_norm=1.0, per_device_train_batch_size=micro,
        gradient_accumulation_steps=tasks * samples // micro, num_generations=samples, max_completion_length=96, temperature=1.0, beta=0.0,
        gradient_checkpointing=False, shuffle_dataset=False,
    ),
)
trainer.train()
trainer.save_model(f"{directory}/adapter")
