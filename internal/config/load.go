package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Load reads the file that --config or OUTLANE_CONFIG names, if any, then environ (as os.Environ gives it), then the flags that were given.
// flags was made by AddFlags and parsed; it may be nil. A variable that is set but empty counts as not set. All that is wrong comes back in
// one *Error.
func Load(environ []string, flags *pflag.FlagSet) (*Config, error) {
	cfg := &Config{origins: map[string]Origin{}}
	for _, f := range fieldTable {
		cfg.fill(f, reflect.ValueOf(cfg).Elem().FieldByIndex(f.index), f.Path)
	}
	var bad problems
	env := outlaneVariables(environ)
	if cfg.file = fileName(env, flags); cfg.file != "" {
		text, err := os.ReadFile(cfg.file)
		if err != nil {
			bad.add("", "read the configuration file: %v; --%s or %s names it", err, FileFlag, FileEnv)
			return nil, bad.err()
		}
		(&fileReader{name: cfg.file, cfg: cfg, bad: &bad}).read(text)
	}
	cfg.readEnv(env, &bad)
	cfg.readFlags(flags, &bad)
	cfg.readSecretFiles(&bad)
	cfg.validate(&bad)
	return cfg, bad.err()
}

// File is the path of the configuration file, empty if there is none.
func (c *Config) File() string { return c.file }

// Origin says where the value of a path came from. Items of lists are paths as well: "routes[0].stream".
func (c *Config) Origin(path string) Origin {
	if o, ok := c.origins[path]; ok {
		return o
	}
	return Origin{Kind: FromDefault}
}

// Need returns an *Error that names those of the paths that are empty, and how to set them.
func (c *Config) Need(paths ...string) error {
	var bad problems
	for _, path := range paths {
		f, ok := fieldByPath[path]
		if !ok {
			panic("no field " + path)
		}
		if c.text(f) == "" {
			file := ""
			if f.file {
				file = ", or a file that holds it as " + f.Env + "_FILE"
			}
			bad.add(path, "%s is not set; give --%s, %s, or %s in the configuration file%s", path, f.Flag, f.Env, path, file)
		}
	}
	return bad.err()
}

// fill gives v the default of f.
func (c *Config) fill(f Field, v reflect.Value, path string) {
	if f.Default == "" {
		return
	}
	if err := f.set(v, f.Default); err != nil {
		panic(fmt.Sprintf("default of %s %v", path, err))
	}
}

func (c *Config) value(f Field) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(f.index) }

func (c *Config) text(f Field) string { return format(c.value(f)) }

// take sets a value from a layer above the file.
func (c *Config) take(f Field, text string, origin Origin, bad *problems) {
	if err := f.set(c.value(f), text); err != nil {
		bad.add(f.Path, "%s%s %v", f.Path, origin.phrase(), err)
		return
	}
	c.origins[f.Path] = origin
}

type variable struct{ name, value string }

// outlaneVariables are those of environ that are ours and not empty, by name.
func outlaneVariables(environ []string) []variable {
	var list []variable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && value != "" && !serviceLink(name, value) {
			list = append(list, variable{name, value})
		}
	}
	slices.SortFunc(list, func(a, b variable) int { return strings.Compare(a.name, b.name) })
	return list
}

var (
	serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	serviceAddress  = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// serviceLink says whether Kubernetes set the variable for a service whose name begins with "outlane".
func serviceLink(name, value string) bool {
	return serviceVariable.MatchString(name) || strings.HasSuffix(name, "_PORT") && serviceAddress.MatchString(value)
}

func fileName(env []variable, flags *pflag.FlagSet) string {
	if flags != nil {
		if flag := flags.Lookup(FileFlag); flag != nil && flag.Changed {
			return flag.Value.String()
		}
	}
	for _, v := range env {
		if v.name == FileEnv {
			return v.value
		}
	}
	return ""
}

func (c *Config) readEnv(env []variable, bad *problems) {
	byEnv := make(map[string]Field, len(fieldTable))
	names := []string{FileEnv}
	for _, f := range fieldTable {
		byEnv[f.Env] = f
		names = append(names, f.Env)
	}
	for _, v := range env {
		f, ok := byEnv[v.name]
		switch {
		case ok:
			c.take(f, v.value, Origin{Kind: FromEnv, Name: v.name}, bad)
		case v.name != FileEnv:
			hint := "; unset it, or see outlane help settings"
			if near := Nearest(v.name, names); near != "" {
				hint = "; did you mean " + near + "?"
			}
			bad.add("", "unknown variable %s%s", v.name, hint)
		}
	}
}

func (c *Config) readFlags(flags *pflag.FlagSet, bad *problems) {
	if flags == nil {
		return
	}
	for _, f := range fieldTable {
		given := ""
		for _, name := range []string{f.Flag, f.Short} {
			flag := flags.Lookup(name)
			if name == "" || flag == nil || !flag.Changed {
				continue
			}
			if given != "" {
				bad.add(f.Path, "--%s and --%s are the same; give one", given, name)
				break
			}
			given = name
			c.take(f, flag.Value.String(), Origin{Kind: FromFlag, Name: "--" + name}, bad)
		}
	}
}

// rank orders origins: a stronger one replaces a weaker one.
var rank = map[OriginKind]int{FromDefault: 0, FromFile: 1, FromEnv: 2, FromFlag: 3}

// readSecretFiles gives each secret that is named by a file its value. A secret and its file are one setting with two forms: the stronger
// origin wins, and two of the same strength contradict each other.
func (c *Config) readSecretFiles(bad *problems) {
	for _, f := range fieldTable {
		if !f.file {
			continue
		}
		by := fieldByPath[f.Path+"File"]
		path := c.text(by)
		if path == "" {
			continue
		}
		if c.text(f) != "" {
			direct, viaFile := c.Origin(f.Path), c.Origin(by.Path)
			switch strength := rank[direct.Kind] - rank[viaFile.Kind]; {
			case strength > 0:
				c.value(by).SetString("")
				delete(c.origins, by.Path)
				continue
			case strength == 0:
				bad.add(f.Path, "%s%s and %s%s are both set; keep one", f.Path, direct.phrase(), by.Path, viaFile.phrase())
				continue
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			bad.add(by.Path, "%s%s cannot be read: %v", by.Path, c.Origin(by.Path).phrase(), err)
			continue
		}
		secret := strings.TrimRight(string(text), "\r\n")
		if secret == "" {
			bad.add(by.Path, "%s%s names an empty file: %s", by.Path, c.Origin(by.Path).phrase(), path)
			continue
		}
		c.take(f, secret, Origin{Kind: FromSecretFile, Name: path}, bad)
	}
}
