// Mcpwire is the wire of the Model Context Protocol in one flat package of the standard library.
package main

func main() {}
