// Command grpo measures whole steps of GRPO on a language model as people have it:
// rollouts by an agent over HTTP, credit, the update, and the new version written and
// served. It prints, for each step, its seconds and the memory of the process, which
// holds everything: Temporal, the gateway, the sampler, the trainer and the agents.
//
//	go run ./bench/grpo -base DIR -steps 5
//	go run ./bench/grpo -base DIR -steps 5 -rank 8
//	go run ./bench/grpo -base DIR -steps 5 -python /path/to/venv/bin/python
//
// With -python, TRL's GRPOTrainer makes the same number of steps on the same prompts,
// rewards and settings in a process of its own (trainer.py; it needs trl, and peft with
// -rank). It has no agents: the trainer generates by itself.
package main
