// Package wire is the library as its users have it: copied. In the folder above,
//
//	go run ./copywire
//
// puts the five files of the library beside this one. They are not committed.
package wire

// Without the copies the compiler stops here, and names the command to run.
var _ = goRunCopywire
