// Package textfile reads the texts that people and their programs save: specs, tasks,
// results, templates and the settings of models. All of them are in UTF-8, with or without a
// byte order mark, and their lines may end with CR LF. A file in another format is refused
// by the name of that format, and a text in another encoding by its first such line, so
// that no reader takes the bytes for something else.
//
// It knows nothing of what a text says.
package textfile
