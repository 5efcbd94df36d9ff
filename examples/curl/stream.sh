#!/bin/sh
# Asks the model once and puts the pieces of its reply together.
set -eu
question=$(jq '.input')
curl -sSN --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
	-H "Authorization: Bearer $OPENAI_API_KEY" \
	-H 'Content-Type: application/json' \
	-d "{\"model\": \"gpt-4o-mini\", \"stream\": true, \"messages\": [
		{\"role\": \"system\", \"content\": \"Write a line about the topic.\"},
		{\"role\": \"user\", \"content\": $question}]}" |
	sed -n 's/^data: *//p' | grep -v '^\[DONE\]' |
	jq -rj '.choices[0].delta.content // empty'
