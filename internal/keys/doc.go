// Package keys reads and writes JSON objects that combine the keys of a struct
// with keys that other code defines. Definitions of tools are such objects:
// some keys are common, the others belong to the kind of the tool.
//
//	own, err := keys.Rest(data, keys.Of(reflect.TypeFor[Common]()))
//	if err != nil {
//		return err
//	}
//	data, err = keys.Join(data, own)
//
// # Guarantees
//
// Digits of numbers stay as they are written, however many they are. The keys of [Rest] are sorted, so
// equal objects give equal bytes. [Nearest] finds the correct form of a misspelt name.
package keys
