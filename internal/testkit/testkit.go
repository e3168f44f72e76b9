// Package testkit holds what the packages below it share.
//
// Those packages are the real parts that tests and the demo are made of: OpenPGP
// signers, provider releases, an origin registry, certificates, the clients and
// a stand-alone OCI registry. Their core functions return errors and know
// nothing of package testing, so that a plain program can use them; thin
// wrappers, mostly called For, take a [TB], end the test on an error and clean
// up after it.
//
// None of it is for production: keys and certificates are throw-away, and the
// servers trust whoever started them.
package testkit

// TB is the part of [testing.TB] that the wrappers use.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	TempDir() string
}
