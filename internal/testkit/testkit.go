// Package testkit declares the type that the packages below it share.
//
// Those packages provide tests and the demo with real parts: OpenPGP signers, provider releases, an origin
// registry, certificates, the clients and a stand-alone OCI registry. Their core functions return errors and
// do not use package testing, so that plain programs can use them. Thin wrappers, mostly called For, take a
// [TB], end the test on an error and clean up after it.
//
// None of these packages is meant for production: keys and certificates are temporary, and the servers trust
// their callers.
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
