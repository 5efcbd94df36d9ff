#!/bin/bash
if [ ! -e draft.md ] && grep -q "Rest first" final.md; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
