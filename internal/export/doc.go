// Package export writes versions as files that other programs load: a Hugging Face
// directory, the adapter alone as PEFT loads it, or a GGUF file. The command and the page
// both export through it.
//
// It reads blobs and writes into one directory; it knows no store and decides nothing.
package export
