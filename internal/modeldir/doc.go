// Package modeldir says what lies where a spec or a command expects the directory of a
// model or of an adapter, and how that becomes one: weights in another format, an adapter
// in place of its base, a GGUF file, a cache of the hub, the name of a model on the hub.
//
// It looks at names and at the first bytes of files. It does not check what a directory of
// the right form holds.
package modeldir
