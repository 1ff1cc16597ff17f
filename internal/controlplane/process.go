package controlplane

// guardScript waits for the end of its standard input, which comes when the process that started it is gone, whatever ended it; the parts
// die with that process. Then it removes the folder.
const guardScript = `trap '' INT TERM HUP; read -r _; sleep 1; rm -rf "$1"`
