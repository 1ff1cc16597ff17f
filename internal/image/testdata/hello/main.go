// Command hello stands for the program in tests of the image.
package main

var version string

func main() { println("hello", version) }
