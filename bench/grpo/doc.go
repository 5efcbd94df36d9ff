// Command grpo measures whole steps of GRPO on a published language model: rollouts by an
// agent over HTTP, credit assignment, the update, and writing and serving the new
// version. For each step it prints the seconds and the memory of the process, which
// contains everything: Temporal, the gateway, the sampler, the trainer and the agents.
//
//	go run ./bench/grpo -base DIR -steps 5
//	go run ./bench/grpo -base DIR -steps 5 -rank 8
//	go run ./bench/grpo -base DIR -steps 5 -python /path/to/venv/bin/python
//
// With -python, TRL's GRPOTrainer makes the same number of steps on the same prompts,
// rewards and settings, in its own process (trainer.py; it needs trl, and with -rank also
// peft). It has no agents: the trainer itself generates the replies.
package main
