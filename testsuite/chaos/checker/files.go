package checker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files says what is there of the files of all versions.
type Files struct {
	Checked int      // files of versions that nothing may remove, and which are whole
	Pruned  int      // versions whose files are gone
	Wrong   []string // what is wrong
}

// Files looks for the files of all versions in a directory of blobs. Those of the newest version
// of each policy, and of the promoted one, have to be there, and to be what their digests say.
func (d *Database) Files(ctx context.Context, blobs string) (Files, error) {
	const query = `SELECT v.run, v.policy, v.number, v.manifest,
	v.number = (SELECT max(n.number) FROM versions n WHERE n.run = v.run AND n.policy = v.policy)
	OR v.policy = $1 AND EXISTS (SELECT 1 FROM promoted p WHERE p.run = v.run AND p.version = v.number)
FROM versions v ORDER BY v.run, v.policy, v.number`
	var out Files
	err := d.list(ctx, query, mainPolicy, func(scan func(...any) error) error {
		var run, policy, manifest string
		var number int
		var kept bool
		if err := scan(&run, &policy, &number, &manifest, &kept); err != nil {
			return err
		}
		checked, err := checkFiles(blobs, manifest)
		switch {
		case err == nil && kept:
			out.Checked += checked
		case err == nil:
		case !kept && errors.Is(err, fs.ErrNotExist):
			out.Pruned++
		default:
			out.Wrong = append(out.Wrong, fmt.Sprintf("version %d of %s of run %s: %v", number, policy, run, err))
		}
		return nil
	})
	if err != nil {
		return Files{}, fmt.Errorf("read the versions of all runs: %w", err)
	}
	return out, nil
}

// checkFiles checks a manifest and the files that it names, and counts them.
func checkFiles(blobs, manifest string) (int, error) {
	text, err := readBlob(blobs, manifest)
	if err != nil {
		return 0, fmt.Errorf("manifest %s: %w", manifest, err)
	}
	var m struct {
		Files map[string]struct {
			Digest string `json:"digest"`
		} `json:"files"`
		Policies map[string]any `json:"policies"` // of a joint version, which has no files of its own
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return 0, fmt.Errorf("manifest %s: %w", manifest, err)
	}
	if len(m.Files) == 0 && len(m.Policies) == 0 {
		return 0, fmt.Errorf("manifest %s names neither files nor policies", manifest)
	}
	for name, file := range m.Files {
		if _, err := readBlob(blobs, file.Digest); err != nil {
			return 0, fmt.Errorf("%s, %s: %w", name, file.Digest, err)
		}
	}
	return 1 + len(m.Files), nil
}

// readBlob reads a file from a directory of blobs, and checks it against its digest.
func readBlob(blobs, digest string) ([]byte, error) {
	name, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(name) != 2*sha256.Size {
		return nil, errors.New("no digest")
	}
	data, err := os.ReadFile(filepath.Join(blobs, name[:2], name))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != name {
		return nil, errors.New("its content is not what its name says")
	}
	return data, nil
}
