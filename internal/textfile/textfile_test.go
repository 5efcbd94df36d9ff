package textfile_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

// wide returns a text in UTF-16.
func wide(order binary.AppendByteOrder, text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, unit)
	}
	return string(out)
}

func packed(t *testing.T) (gz, zipped, tarred string) {
	t.Helper()
	var a, b, c bytes.Buffer
	g := gzip.NewWriter(&a)
	_, err := g.Write([]byte("text"))
	require.NoError(t, err)
	require.NoError(t, g.Close())
	z := zip.NewWriter(&b)
	w, err := z.Create("a.txt")
	require.NoError(t, err)
	_, err = w.Write([]byte("text"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	archive := tar.NewWriter(&c)
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "a.txt", Size: 4, Mode: 0o600}))
	_, err = archive.Write([]byte("text"))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	return a.String(), b.String(), c.String()
}

func TestFilesThatAreNoTextsAreNamed(t *testing.T) {
	t.Parallel()
	gz, zipped, tarred := packed(t)
	for content, want := range map[string]string{
		gz:     "compressed by gzip: unpack it first (gunzip)",
		zipped: "a ZIP archive: unpack it first (unzip)",
		tarred: "a tar archive: unpack it first",
		"\xff\xfe" + wide(binary.LittleEndian, "name: é"): "in UTF-16: save it in UTF-8",
		"\xfe\xff" + wide(binary.BigEndian, "name: é"):    "in UTF-16",
		wide(binary.LittleEndian, "name: é"):              "in UTF-16",
		wide(binary.BigEndian, "name: é"):                 "in UTF-16",
		"\xff\xfe\x00\x00n\x00\x00\x00":                   "in UTF-32",
		"PAR1\x15\x04":                                    "a Parquet file, where a text in UTF-8 is expected",
		"GGUF\x03\x00\x00\x00":                            "a GGUF model",
		"\x10\x00\x00\x00\x00\x00\x00\x00{\"a\":{}}":      "a safetensors file",
		"\x41\x00\x01\x00\x00\x00\x00\x00{\"a\":{}}":      "a safetensors file",
		"\x80\x02}q\x00.":                                 "a Python pickle",
		"SQLite format 3\x00":                             "an SQLite database",
		"a\x00b":                                          "a binary file",
	} {
		_, err := textfile.Decode([]byte(content))
		require.ErrorIs(t, err, textfile.ErrText)
		require.ErrorContains(t, err, "it is "+want)
	}
}

func TestTheFirstLineInAnotherEncodingIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.txt")
	require.NoError(t, os.WriteFile(path, []byte("\ufeffone\r\ntwo é\r\ncaf\xe9\r\n\xe9"), 0o600))
	_, err := textfile.Read(path)
	var other *textfile.NotUTF8
	require.ErrorAs(t, err, &other)
	require.Equal(t, 3, other.Line)
	require.ErrorContains(t, err, "read "+path+": line 3 is not UTF-8: save the file in UTF-8 (it may be in Latin-1)")
}

func TestAByteOrderMarkIsNoPartOfAText(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"\ufeff{}\r\n": "{}\r\n", "\ufeff": "", "": "", "é": "é", "�": "�", "\ufeff\ufeffa": "\ufeffa",
	} {
		path := filepath.Join(t.TempDir(), "a.txt")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		got, err := textfile.Read(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	_, err := textfile.Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
