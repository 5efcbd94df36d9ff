package catalog_test

import "testing"

// BenchmarkResolve measures how a name becomes the version that answers, with a store on
// disk. It happens at each request for a served version.
func BenchmarkResolve(b *testing.B) {
	s := newFakeRecords(b)
	for b.Loop() {
		if _, err := s.Resolve(b.Context(), "demo@promoted"); err != nil {
			b.Fatal(err)
		}
	}
}
