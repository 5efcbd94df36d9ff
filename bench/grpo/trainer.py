"""Steps of TRL's GRPOTrainer on a CPU, each a line of JSON.

trainer.py MODEL PROBLEMS DIR STEPS TASKS SAMPLES TOKENS RANK
"""

import json
import sys
import time

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

base, problems, directory = sys.argv[1:4]
steps, tasks, samples, tokens, rank = (int(n) for n in sys.argv[4:])
with open(problems) as file:
    rows = [json.loads(line) for line in file]


def memory():
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return {key: int(fields[name].split()[0]) * 1024 for key, name in (("resident", "VmRSS"), ("peak", "VmHWM"))}


def reward(completions, answer, **_):
    return [float(a in c[0]["content"]) for c, a in zip(completions, answer)]


class Clock(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.began = time.time()

    def on_log(self, _args, _state, _control, logs=None, **__):
        if logs and "reward" in logs:
            print(json.dumps({"seconds": time.time() - self.began, "reward": logs["reward"], **memory()}), flush=True)


adapter = None
if rank:
    from peft import LoraConfig

    adapter = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
    processing_class=AutoTokenizer.from_pretrained(base),
    reward_funcs=reward,
    train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": r["input"]}], "answer": r["answer"]} for r in rows]),
    peft_config=adapter,
    callbacks=[Clock()],
    args=GRPOConfig(
        output_dir=directory, use_cpu=True, bf16=False, fp16=False, max_steps=steps, logging_steps=1, save_strategy="steps", save_steps=1,
        save_total_limit=2, report_to=[], disable_tqdm=True, learning_rate=2e-5, lr_scheduler_type="constant", max_grad_norm=1.0,
        per_device_train_batch_size=tasks * samples, num_generations=samples, max_completion_length=tokens, temperature=1.0, beta=0.0,
        gradient_checkpointing=False, shuffle_dataset=False,
    ),
)
trainer.train()
