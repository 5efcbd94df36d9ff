// Package export writes versions as files that other programs load: a Hugging Face
// directory, the adapter alone as PEFT loads it, or a GGUF file. Both the command and the
// page use it.
//
// It reads blobs and writes into one directory. It uses no store and decides nothing.
package export
