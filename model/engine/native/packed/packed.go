// Package packed keeps the weights of a frozen base in a file, in the form that an engine
// computes with: rounded, padded and packed in panels. Every process that computes with
// the base maps the file. So the machine holds one copy of it for any number of
// processes, and the system may drop pages and read them again when memory is short.
//
// # What may be relied on
//
// Open returns, to the bit, the numbers that its caller would have computed: a file names
// everything that its content depends on, and is used only if its content has the SHA-256
// that was written with it. A file that is damaged, cut off or in another layout is
// replaced. A file gets its name only after all of it is on the disk. A killed process
// leaves a file that nobody reads and that the next writer replaces.
//
// A file is never required. If it can't be made, because the directory can't be written
// to or has too little room, or because the system maps no files, the numbers are only in
// this process's memory.
//
// # What it is not
//
// It removes no files of a base: whoever removes a base removes the files made of it
// (package store/blob). Content is checked when a file is opened. It is not checked again
// when the system drops pages and reads them from the disk later. If the disk fails then,
// the process ends.
package packed

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
)

// format names the layout of a file: headerSize bytes, which are the header as JSON and
// zeros, and then the numbers.
const format = "fulgurite.packed/1"

// headerSize is the size of the largest page that the supported systems have.
const headerSize = 1 << 14

// Key holds everything that the numbers of a file depend on.
type Key struct {
	Base         string             `json:"base"` // digest
	Architecture model.Architecture `json:"architecture"`
	Precision    model.Precision    `json:"precision"`
	// Layout describes the order of the numbers, in the engine's words.
	Layout string `json:"layout"`
	// Numbers is how many numbers there are, of four bytes each.
	Numbers int `json:"numbers"`
}

// header is the header of a file.
type header struct {
	Format string `json:"format"`
	Key
	BigEndian bool   `json:"big_endian"`
	SHA256    string `json:"sha256"` // of the numbers, in hex
}

func newHeader(k Key, sum []byte) header {
	return header{format, k, binary.NativeEndian.Uint16([]byte{0, 1}) == 1, fmt.Sprintf("%x", sum)}
}

// with returns h with the digest sum.
func (h header) with(sum string) header {
	h.SHA256 = sum
	return h
}

// Name returns the name of k's file, which differs among files made of the same base.
func (k Key) Name() string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(newHeader(k, nil)) // of numbers and strings
	return fmt.Sprintf("native-%016x", h.Sum64())
}

// size returns the size of the file, in bytes.
func (k Key) size() int64 { return headerSize + 4*int64(k.Numbers) }

// Size returns the size, in bytes, of a file of so many numbers.
func Size(numbers int64) int64 { return headerSize + 4*numbers }

func (h header) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the header: %w", err)
	}
	if len(text) > headerSize {
		return nil, fmt.Errorf("the header takes %d bytes, there are %d", len(text), headerSize)
	}
	return append(text, make([]byte, headerSize-len(text))...), nil
}

// parseHeader returns the zero header if the text is no header.
func parseHeader(text []byte) (h header) {
	if json.Unmarshal(bytes.TrimRight(text, "\x00"), &h) != nil {
		return header{}
	}
	return h
}

const (
	// written and locked are the suffixes of the file that is being written and of the
	// lock.
	written, locked = ".new", ".lock"
	// chunk is how many bytes are hashed at a time.
	chunk = 1 << 20
)

// ErrUnfit is wrapped where a file is not the one of a key.
var ErrUnfit = errors.New("not the file of this key")

// Files opens and makes files. The zero value is right for everything but tests.
type Files struct {
	// Patience is how long Open waits while another process makes the same file, before
	// it continues with numbers in memory; 0 means a minute.
	Patience time.Duration
}

// Open returns the numbers of k. It maps the file at path. If there is no such file, or
// it is not k's, Open makes it. If path is empty or there can't be a file, the numbers
// are in memory. fill gets zeros and sets the numbers. The caller frees the numbers and
// must not write to them.
func (f Files) Open(path string, k Key, fill func([]float32) error) (*memory.Floats, error) {
	if path == "" {
		return inMemory(k, fill)
	}
	if held, err := open(path, k); err == nil {
		return held, nil
	}
	unlock, ok := f.lock(path, k)
	if !ok {
		return inMemory(k, fill)
	}
	defer unlock()
	if held, err := open(path, k); err == nil { // another process made it
		return held, nil
	}
	held, err := inMemory(k, fill)
	if err != nil {
		return nil, err
	}
	mapped, err := write(path, k, held.Data())
	if err != nil {
		return held, nil // the same numbers, in memory
	}
	held.Free()
	return mapped, nil
}

func inMemory(k Key, fill func([]float32) error) (*memory.Floats, error) {
	held := memory.New(k.Numbers)
	if err := fill(held.Data()); err != nil {
		held.Free()
		return nil, err
	}
	return held, nil
}

// open maps the file at path if it is k's and is complete.
func open(path string, k Key) (held *memory.Floats, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := check(f, k); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return memory.MapFile(f, headerSize, k.Numbers)
}

// check reads the whole file and reports how it differs from k's.
func check(f *os.File, k Key) error {
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	if stat.Size() != k.size() {
		return fmt.Errorf("%w: it has %d bytes, want %d", ErrUnfit, stat.Size(), k.size())
	}
	text := make([]byte, headerSize)
	if _, err := io.ReadFull(f, text); err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	sum := sha256.New()
	said := parseHeader(text)
	if said != newHeader(k, nil).with(said.SHA256) {
		return fmt.Errorf("%w: its header says %+v", ErrUnfit, said)
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, make([]byte, chunk)); err != nil {
		return fmt.Errorf("read the numbers: %w", err)
	}
	if said != newHeader(k, sum.Sum(nil)) {
		return fmt.Errorf("%w: its numbers have another SHA-256", ErrUnfit)
	}
	return nil
}

// lock waits until no other process makes the file at path. It returns false if there
// can't be a file: if the disk has no room for twice its size, so that a file that is not
// required never fills a disk, or if the lock can't be taken.
func (f Files) lock(path string, k Key) (unlock func(), ok bool) {
	free, err := memory.Free(filepath.Dir(path))
	if err != nil || free < 2*k.size() {
		return nil, false
	}
	l, err := os.OpenFile(path+locked, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false
	}
	maxWait := f.Patience
	if maxWait == 0 {
		maxWait = time.Minute
	}
	if err := memory.Lock(l, maxWait); err != nil {
		_ = l.Close() // nothing was written
		return nil, false
	}
	return func() { _ = l.Close() }, true
}

// write makes the file at path from numbers and maps it. The caller holds the lock.
func write(path string, k Key, numbers []float32) (held *memory.Floats, err error) {
	bytes := memory.Bytes(numbers)
	sum := sha256.Sum256(bytes)
	text, err := newHeader(k, sum[:]).encode()
	if err != nil {
		return nil, err
	}
	// A file that a killed process left may be read-only.
	if err := os.Remove(path + written); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.Create(path + written)
	if err != nil {
		return nil, err
	}
	named := false
	defer func() {
		if !named {
			err = errors.Join(err, os.Remove(f.Name()))
		}
		err = errors.Join(err, f.Close())
	}()
	for _, part := range [][]byte{text, bytes} {
		if _, err := f.Write(part); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(f.Chmod(0o444), f.Sync()); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return nil, err
	}
	named = true
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return memory.MapFile(f, headerSize, k.Numbers)
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
