package blob_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/store/blob"
)

// helloDigest is `printf hello | sha256sum`.
const helloDigest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

// The environment variables that turn this test binary into a child process.
const (
	childTask      = "BLOB_TEST_CHILD"
	childDirectory = "BLOB_TEST_DIRECTORY"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childTask) {
	case "":
		os.Exit(m.Run())
	case "put under a limit":
		os.Exit(putUnderLimit(os.Getenv(childDirectory)))
	case "put until full":
		os.Exit(putUntilFull(os.Getenv(childDirectory)))
	case "put until killed":
		fmt.Println(putUntilKilled(os.Getenv(childDirectory)))
	}
	os.Exit(1)
}

func open(t *testing.T) (*blob.Store, string) {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "deep", "blobs")
	s, err := blob.Open(directory)
	require.NoError(t, err)
	return s, directory
}

// files lists the files below directory.
func files(t *testing.T, directory string) []string {
	t.Helper()
	var out []string
	require.NoError(t, filepath.WalkDir(directory, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	}))
	return out
}

func TestContentIsNamedByItsDigest(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	digest, err := s.Put(t.Context(), []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, helloDigest, digest)
	streamed, err := s.PutFrom(t.Context(), strings.NewReader("hello"))
	require.NoError(t, err)
	require.Equal(t, helloDigest, streamed)

	got, err := s.Get(t.Context(), digest)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	got, err = stream(t, s, digest)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	path, err := s.Path(digest)
	require.NoError(t, err)
	require.Equal(t, []string{path}, files(t, directory), "one file, and no remains")
	plain, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "hello", string(plain))
}

func TestEmptyContentIsContent(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	digest, err := s.Put(t.Context(), nil)
	require.NoError(t, err)
	got, err := s.Get(t.Context(), digest)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestAbsentBlobIsNotFound(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	_, err := s.Get(t.Context(), helloDigest)
	require.ErrorIs(t, err, blob.ErrNotFound)
	_, _, err = s.Open(t.Context(), helloDigest)
	require.ErrorIs(t, err, blob.ErrNotFound)
	has, err := s.Has(t.Context(), helloDigest)
	require.NoError(t, err)
	require.False(t, has)
	_, err = s.Put(t.Context(), []byte("hello"))
	require.NoError(t, err)
	has, err = s.Has(t.Context(), helloDigest)
	require.NoError(t, err)
	require.True(t, has)
}

func TestWhatIsNoDigestReachesNoFile(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, digest := range []string{"", "sha256:", "../../etc/passwd", "sha256:../../../etc/passwd", strings.ToUpper(helloDigest), helloDigest + "0", helloDigest[7:], helloDigest + "\n"} {
		_, err := s.Path(digest)
		require.ErrorIs(t, err, blob.ErrDigest, "%q", digest)
		_, err = s.Get(t.Context(), digest)
		require.ErrorIs(t, err, blob.ErrDigest, "%q", digest)
		_, err = s.Has(t.Context(), digest)
		require.ErrorIs(t, err, blob.ErrDigest, "%q", digest)
	}
}

func TestRottenFileIsNeverReturnedAndThenReplaced(t *testing.T) {
	t.Parallel()
	for name, rotten := range map[string]string{"flipped": "jello", "cut": "hell", "emptied": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, directory := open(t)
			digest, err := s.Put(t.Context(), []byte("hello"))
			require.NoError(t, err)
			path, err := s.Path(digest)
			require.NoError(t, err)
			require.NoError(t, os.Chmod(path, 0o644))
			require.NoError(t, os.WriteFile(path, []byte(rotten), 0o644))

			_, err = s.Get(t.Context(), digest)
			require.ErrorIs(t, err, blob.ErrCorrupt)
			require.ErrorContains(t, err, path)

			_, err = s.Put(t.Context(), []byte("hello"))
			require.NoError(t, err)
			got, err := s.Get(t.Context(), digest)
			require.NoError(t, err)
			require.Equal(t, "hello", string(got))
			require.Equal(t, []string{path}, files(t, directory))
		})
	}
}

func TestReaderThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	broken := errors.New("wire cut")
	_, err := s.PutFrom(t.Context(), io.MultiReader(strings.NewReader("hel"), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.Empty(t, files(t, directory))
}

func TestManyWritersOfOneContentAgree(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	other, err := blob.Open(directory)
	require.NoError(t, err)
	content := bytes.Repeat([]byte("weights"), 10_000)
	var g errgroup.Group
	for i := range 16 {
		g.Go(func() error {
			store := []*blob.Store{s, other}[i%2]
			digest, err := store.PutFrom(t.Context(), bytes.NewReader(content))
			if err != nil {
				return err
			}
			got, err := store.Get(t.Context(), digest)
			if err == nil && !bytes.Equal(got, content) {
				err = errors.New("other content")
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, files(t, directory), 1)
}

func TestOpenRemovesOnlyStaleRemains(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	_, err := s.Put(t.Context(), []byte("hello"))
	require.NoError(t, err)
	old, young := filepath.Join(directory, ".put-1"), filepath.Join(directory, ".put-2")
	for _, path := range []string{old, young} {
		require.NoError(t, os.WriteFile(path, []byte("half"), 0o600))
	}
	hours := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(old, hours, hours))
	path, err := s.Path(helloDigest)
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(path, hours, hours))

	_, err = blob.Open(directory)
	require.NoError(t, err)
	require.NoFileExists(t, old)
	require.FileExists(t, young)
	require.FileExists(t, path, "content is no remains, however old")
}

// A limit on the size of files stands in for a full disk: both make a write end
// early.
func TestDiskThatFillsUpLeavesNoPartOfABlob(t *testing.T) {
	t.Parallel()
	_, directory := open(t)
	out, err := child(t, "put under a limit", directory).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "put blob: no room")
	require.Contains(t, string(out), "file too large")
	require.Contains(t, string(out), "free space, or raise the quota, in "+directory)
	require.Empty(t, files(t, directory))
}

func putUnderLimit(directory string) int {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		fmt.Println(err)
		return 1
	}
	s, err := blob.Open(directory)
	if err == nil {
		_, err = s.Put(context.Background(), make([]byte, 1<<20))
	}
	if err == nil {
		fmt.Println("the limit was not reached")
		return 1
	}
	fmt.Println(err)
	return 0
}

// The child prints each blob after Put returned. After the child was killed, these blobs
// must be intact, and no other file may be named like a digest.
func TestKilledWriterLosesNothingItReported(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	c := child(t, "put until killed", directory)
	pipe, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var reported []string
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if reported = append(reported, lines.Text()); len(reported) == 40 {
			require.NoError(t, c.Process.Kill())
		}
	}
	require.Error(t, c.Wait(), "the child was killed")
	require.GreaterOrEqual(t, len(reported), 40)
	for _, digest := range reported {
		_, err := s.Get(t.Context(), digest)
		require.NoError(t, err)
	}
	for _, path := range files(t, directory) {
		if name := filepath.Base(path); !strings.HasPrefix(name, ".put-") {
			_, err := s.Get(t.Context(), "sha256:"+name)
			require.NoError(t, err)
		}
	}
}

// putUntilKilled returns only if a write fails.
func putUntilKilled(directory string) error {
	s, err := blob.Open(directory)
	for i := 0; err == nil; i++ {
		var digest string
		if digest, err = s.Put(context.Background(), bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 100_000)); err == nil {
			fmt.Println(digest)
		}
	}
	return err
}

// child returns a command that runs this test binary with another task.
func child(t *testing.T, task, directory string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), childTask+"="+task, childDirectory+"="+directory)
	return c
}

// stream reads a blob as a stream, in pieces of three bytes.
func stream(t *testing.T, s *blob.Store, digest string) ([]byte, error) {
	t.Helper()
	content, size, err := s.Open(t.Context(), digest)
	require.NoError(t, err)
	defer func() { require.NoError(t, content.Close()) }()
	var out []byte
	for piece := make([]byte, 3); ; {
		n, err := content.Read(piece)
		out = append(out, piece[:n]...)
		if err == nil {
			continue
		}
		require.EqualValues(t, len(out), size)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return out, err
	}
}

// Cutting off any part of a file, or flipping any bit, is noticed.
func TestNoCutAndNoFlippedBitGoesUnnoticed(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	content := []byte("weights of version 12, and then some moments")
	digest, err := s.Put(t.Context(), content)
	require.NoError(t, err)
	path, err := s.Path(digest)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o644))
	spoilt := func(data []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, data, 0o644))
		_, err := s.Get(t.Context(), digest)
		require.ErrorIs(t, err, blob.ErrCorrupt)
		_, err = stream(t, s, digest)
		require.ErrorIs(t, err, blob.ErrCorrupt)
		require.ErrorContains(t, err, path)
	}
	for n := range content {
		spoilt(content[:n])
	}
	spoilt(append(bytes.Clone(content), 0))
	for bit := range 8 * len(content) {
		flipped := bytes.Clone(content)
		flipped[bit/8] ^= 1 << (bit % 8)
		spoilt(flipped)
	}
	require.NoError(t, os.WriteFile(path, content, 0o644))
	_, err = s.Get(t.Context(), digest)
	require.NoError(t, err)
}

func TestAContentGetsItsNameWhenItsRecordSaysSo(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	put := func(record func(publish func() error) error) error {
		_, err := s.PutRecorded(t.Context(), strings.NewReader("hello"), func(digest string, publish func() error) error {
			require.Equal(t, helloDigest, digest)
			return record(publish)
		})
		return err
	}
	has := func() bool {
		has, err := s.Has(t.Context(), helloDigest)
		require.NoError(t, err)
		return has
	}
	refused := errors.New("refused")
	require.ErrorIs(t, put(func(func() error) error { return refused }), refused)
	require.NoError(t, put(func(func() error) error { return nil }))
	require.False(t, has())
	require.Empty(t, files(t, directory), "nothing is left")

	require.NoError(t, put(func(publish func() error) error {
		require.False(t, has())
		require.NoError(t, publish())
		require.True(t, has())
		return publish() // a transaction runs once more
	}))
	require.True(t, has())

	// Between the two, somebody removes what was there.
	require.NoError(t, put(func(publish func() error) error {
		require.NoError(t, s.Remove(t.Context(), helloDigest))
		return publish()
	}))
	require.True(t, has())

	path, err := s.Path(helloDigest)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.WriteFile(path, []byte("damaged"), 0o644))
	require.NoError(t, put(func(publish func() error) error { return publish() }))
	data, err := s.Get(t.Context(), helloDigest)
	require.NoError(t, err)
	require.Equal(t, "hello", string(data))
}
