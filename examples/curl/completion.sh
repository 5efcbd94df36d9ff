#!/bin/sh
# Asks for the rest of a text.
set -eu
question=$(jq '.input')
curl -sS --fail-with-body "$OPENAI_BASE_URL/completions" \
	-H "Authorization: Bearer $OPENAI_API_KEY" \
	-H 'Content-Type: application/json' \
	-d "{\"model\": \"gpt-3.5-turbo-instruct\", \"prompt\": $question, \"max_tokens\": 100}" |
	jq -r '.choices[0].text'
