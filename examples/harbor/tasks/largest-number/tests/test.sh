#!/bin/bash
if [ "$(cat max.txt)" = 112 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
