package drift

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"holdfast/protocol"
)

// Example returns a message of the given type in which all fields are set. Each call returns the same
// values, and no two fields of a message have the same value.
func Example(reg *protocol.Registry, typ string, consts []Const) protocol.Message {
	m := reg.New(typ)
	e := example{consts: consts}
	e.fill(reflect.ValueOf(m).Elem(), typ)
	return m
}

// An example makes the values of one message.
type example struct {
	consts []Const
	n      int // number of values made so far
}

// fill sets v, which belongs to the field name, and all values in it.
func (e *example) fill(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case time.Time:
		e.n++
		v.Set(reflect.ValueOf(time.Date(2026, 9, 1, 12, 0, e.n, 0, time.UTC)))
		return
	case []byte:
		v.SetBytes([]byte("\x1b[1m" + name + "\xff\r\n"))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			e.fill(v.Field(i), tag)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		e.fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		e.fill(v.Index(0), name)
		e.fill(v.Index(1), name)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"pane_id": "pane-1", "title": "<höhe & breite>"}))
	default:
		e.n++
		e.scalar(v, name)
	}
}

// scalar sets a string, a bool or a number. If the string has a type with constants, the value is one
// of these constants.
func (e *example) scalar(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.String:
		s := fmt.Sprintf("%s-%d", name, e.n)
		if known := Values(e.consts, v.Type().Name()); len(known) > 0 {
			s = known[e.n%len(known)]
		}
		v.SetString(s)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(e.n) + 0.5)
	case reflect.Uint32:
		v.SetUint(1<<31 + uint64(e.n))
	case reflect.Uint64:
		v.SetUint(1<<40 + uint64(e.n))
	default:
		v.SetInt(int64(e.n))
	}
}
