// Package provider defines the basic types of the project: provider addresses, versions and
// version constraints, platforms, package hashes, and include and exclude patterns.
//
// The values are small and comparable. They are validated and normalised when they are
// created: the result of a Parse function prints to a string that parses to an equal value.
// The rules are those of the clients, Terraform and OpenTofu. They come from the libraries
// that the clients use, with stricter checks where those libraries panic or accept more than
// they write.
//
// The package does no I/O; [H1] reads a zip through the reader that it is given.
package provider
