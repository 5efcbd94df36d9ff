#!/bin/bash
mv draft.md final.md
