package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/model"
)

// readAdapter returns the digest of the adapter that an external trainer left in a
// directory.
func readAdapter(directory string) (weights string, err error) {
	config, err := os.ReadFile(filepath.Join(directory, model.AdapterConfigFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w: there is no adapter in %s: give model.lora, or have the trainer leave %s and %s there",
			ErrVersion, directory, model.AdapterConfigFile, model.AdapterFile)
	}
	if err != nil {
		return "", fmt.Errorf("read adapter: %w", err)
	}
	file, err := os.ReadFile(filepath.Join(directory, model.AdapterFile))
	if err != nil {
		return "", fmt.Errorf("read adapter: %w", err)
	}
	sum := sha256.Sum256(append(config, file...))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
