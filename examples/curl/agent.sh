#!/bin/sh
# Asks the model once.
set -eu
question=$(jq '.input')
curl -sS --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
	-H "Authorization: Bearer $OPENAI_API_KEY" \
	-H 'Content-Type: application/json' \
	-d "{\"model\": \"gpt-4o-mini\", \"messages\": [
		{\"role\": \"system\", \"content\": \"Write a line about the topic.\"},
		{\"role\": \"user\", \"content\": $question}]}" |
	jq -r '.choices[0].message.content'
