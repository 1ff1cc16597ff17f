package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// tick is Linux's unit of processor time in /proc, in seconds.
const tick = 0.01

// stat reads fields of /proc/<pid>/stat, by their numbers in proc(5), which begin at 3: the name before may hold anything.
func stat(pid int, fields ...int) ([]float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	list := strings.Fields(rest)
	values := make([]float64, len(fields))
	for i, f := range fields {
		if f-3 >= len(list) {
			return nil, fmt.Errorf("read /proc/%d/stat: it has no field %d", pid, f)
		}
		if values[i], err = strconv.ParseFloat(list[f-3], 64); err != nil {
			return nil, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
	}
	return values, nil
}

// cpu is the processor time that processes have used, in seconds.
func cpu(pids ...int) (float64, error) {
	var total float64
	for _, pid := range pids {
		v, err := stat(pid, 14, 15)
		if err != nil {
			return 0, fmt.Errorf("read the processor time of a process: %w", err)
		}
		total += (v[0] + v[1]) * tick
	}
	return total, nil
}

// familyCPU is the same for a process with all its children, those that have ended included.
func familyCPU(pid int) (float64, error) {
	v, err := stat(pid, 14, 15, 16, 17)
	if err != nil {
		return 0, fmt.Errorf("read the processor time of a process: %w", err)
	}
	total := (v[0] + v[1] + v[2] + v[3]) * tick
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, fmt.Errorf("list the children of a process: %w", err)
	}
	for _, field := range strings.Fields(string(children)) {
		if child, err := strconv.Atoi(field); err == nil {
			used, err := cpu(child)
			if err == nil { // else it has just ended
				total += used
			}
		}
	}
	return total, nil
}

// parent is the process that started pid.
func parent(pid int) (int, error) {
	v, err := stat(pid, 4)
	if err != nil {
		return 0, fmt.Errorf("find the parent of a process: %w", err)
	}
	return int(v[0]), nil
}

// peakMemory is the most memory that a process had at once, in bytes.
func peakMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of a process: %w", err)
			}
			return kib * 1024, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: it is not said", pid)
}
