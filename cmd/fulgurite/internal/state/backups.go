package state

import (
	"path/filepath"

	"github.com/fulgurite/fulgurite/run/backup"
)

// backupsFile returns the path of the file that names the directories of backups: in the
// directory of state, or for the records of a fleet in their directory of blobs, which all
// machines of the fleet see.
func (s *Flags) backupsFile(r RecordFlags) string {
	if r.Store != "" {
		return filepath.Join(r.Blobs, "backups.json")
	}
	return filepath.Join(s.Dir, "backups.json")
}

// Backups returns the directories that have backups of these records, as far as they know.
func (s *Flags) Backups(r RecordFlags) ([]string, error) { return backup.Directories(s.backupsFile(r)) }

// AddBackups notes directories that have, or will have, backups of these records, and survives
// loss of power.
func (s *Flags) AddBackups(r RecordFlags, directories ...string) error {
	return backup.AddDirectories(s.backupsFile(r), directories...)
}
