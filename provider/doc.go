// Package provider defines the basic types of the project: provider addresses, versions and
// version constraints, platforms, package hashes, and include and exclude patterns.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// The values are small and comparable. They are validated and normalised when they are
// created. The result of a Parse function prints to a string that parses to an equal value.
// The rules are those of the clients, Terraform and OpenTofu. The rules come from the
// libraries of the clients. The checks are stricter where those libraries panic, or accept
// texts that they never write.
//
// The package does no I/O. [H1] and [CheckZip] read a zip from the reader that the caller
// provides.
package provider
