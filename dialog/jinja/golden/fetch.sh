#!/bin/sh
# Fetches the chat templates of two Python packages into fetched/ and renders them with
# Python. They are those of published models, and no part of this repository. It needs
# python3 with venv, and downloads about 80 MB.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q -r requirements.txt scikit-build-core 'setuptools>=77.0.3'
for package in trl==1.16.0 llama-cpp-python==0.3.36; do
	"$work/venv/bin/pip" download -q --no-deps --no-build-isolation --no-binary :all: -d "$work" "$package"
done
mkdir -p fetched "$work/trl" "$work/llamacpp"
tar -xzf "$work"/trl-*.tar.gz -C "$work/trl"
tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work/llamacpp"
for origin in trl llamacpp; do
	find "$work/$origin" -path '*templates/*.jinja' | while read -r file; do
		cp "$file" "fetched/$origin-$(basename "$file")"
	done
done
"$work/venv/bin/python" render.py fetched fetched/expected.json
echo "$(ls fetched/*.jinja | wc -l) templates; go test ./dialog ./dialog/jinja compares them"
