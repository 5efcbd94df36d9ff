// Package pgtest gives tests a PostgreSQL database of their own, with the
// store's schema in it.
//
// The server is the one that TEST_DATABASE_URL names (its user must be allowed
// to create databases), or else one that the package starts from the installed
// binaries, in a temporary directory, reached by a socket only, once for each
// test binary. A small shell process watches the test binary: when that ends,
// in whatever way, the server is stopped and its directory removed.
//
// Where there is neither, tests are skipped, except where the environment
// variable CI is set: there, a check that silently does not run would be a
// check that passes.
//
// The server that the package starts does not sync to disk. That is enough for
// processes that are killed, and not for tests of power loss.
package pgtest
