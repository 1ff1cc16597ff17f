package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Names of the flag and the variable that give the configuration file.
const (
	FileFlag = "config"
	FileEnv  = envPrefix + "CONFIG"
)

// AddFlags gives fs a flag for each value of the table, and --config. Only the common ones are shown in help texts. What they say is checked
// by Load, with everything else.
func AddFlags(fs *pflag.FlagSet) {
	fs.String(FileFlag, "", "configuration file ("+FileEnv+")")
	for _, f := range fieldTable {
		shown := f.Flag
		if f.Short != "" {
			shown = f.Short
		}
		for _, name := range []string{f.Flag, f.Short} {
			if name == "" {
				continue
			}
			flag := fs.VarPF(&flagText{kind: f.Kind}, name, "", fmt.Sprintf("%s (%s)", f.summary(), f.Env))
			flag.Hidden = !f.Common || name != shown
			if f.Kind == KindBool {
				flag.NoOptDefVal = "true"
			}
		}
	}
}

// flagText keeps a flag's text as it was given.
type flagText struct {
	kind Kind
	text string
}

func (t *flagText) Set(text string) error { t.text = text; return nil }
func (t *flagText) String() string        { return t.text }

// Type is the word for the value in help texts.
func (t *flagText) Type() string {
	switch t.kind {
	case KindNumber:
		return "number"
	case KindDuration:
		return "duration"
	case KindBytes:
		return "size"
	case KindBool:
		return "bool"
	case KindText, KindTexts:
	}
	return "string"
}
