#!/bin/bash
if [ "$(tr -d " " <count.txt)" = 5 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
