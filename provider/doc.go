// Package provider owns the words that everything else speaks: provider
// addresses, versions and version constraints, platforms, package hashes, and
// include and exclude patterns.
//
// Values are small and comparable, checked and normalised when they are made:
// what a Parse function returns prints back to a string that parses to an equal
// value. Rules are those of the clients (Terraform and OpenTofu), taken from
// the libraries that they decide with, behind stricter checks where those
// libraries panic or read more than they write.
//
// The package does no I/O; [H1] reads a zip through the reader that it is given.
package provider
