// Package calc carries the calculator example inside the binary, so that the
// demo runs from anywhere: its spec, and a warm-started checkpoint of the tiny
// model, made by `make warm-start`.
package calc

import _ "embed"

// Spec is spec.yaml.
//
//go:embed spec.yaml
var Spec []byte

// Config and Weights are the checkpoint that the demo starts from.
var (
	//go:embed warm/config.json
	Config []byte
	//go:embed warm/model.safetensors
	Weights []byte
)
