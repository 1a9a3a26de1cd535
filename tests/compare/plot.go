package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// series is a named row of numbers, one for each category; NaN where there is none.
type series struct {
	name   string
	values []float64
}

var colours = []string{"#9aa5b1", "#d98e04", "#7a5195", "#1f77b4", "#2ca02c"}

const (
	plotHeight  = 260
	plotMargin  = 50
	plotBar     = 14
	plotSpacing = 16
)

// barChart draws bars in groups as SVG. A line marks where reference is, if it is over 0.
func barChart(title string, categories []string, all []series, reference float64) string {
	most := reference
	for _, s := range all {
		for _, value := range s.values {
			if !math.IsNaN(value) {
				most = math.Max(most, value)
			}
		}
	}
	if most == 0 {
		most = 1
	}
	group := plotBar*len(all) + plotSpacing
	width := 2*plotMargin + group*len(categories)
	y := func(value float64) float64 { return plotMargin + plotHeight*(1-value/most) }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", max(width, 500), plotHeight+2*plotMargin+20)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", plotMargin, escaped(title))
	for i, s := range all {
		fmt.Fprintf(&out, `<rect x="%d" y="28" width="10" height="10" fill="%s"/><text x="%d" y="37">%s</text>`+"\n",
			plotMargin+i*110, colours[i%len(colours)], plotMargin+i*110+14, escaped(s.name))
	}
	for c, category := range categories {
		left := plotMargin + c*group
		for i, s := range all {
			value := s.values[c]
			if math.IsNaN(value) {
				continue
			}
			fmt.Fprintf(&out, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"><title>%s, %s: %.3g</title></rect>`+"\n",
				left+i*plotBar, y(value), plotBar-2, y(0)-y(value), colours[i%len(colours)], escaped(category), escaped(s.name), value)
		}
		fmt.Fprintf(&out, `<text x="%d" y="%d">%s</text>`+"\n", left, plotMargin+plotHeight+15, escaped(category))
	}
	for _, mark := range []float64{0, most / 2, most, reference} {
		fmt.Fprintf(&out, `<text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n", plotMargin-6, y(mark)+4, mark)
	}
	if reference > 0 {
		fmt.Fprintf(&out, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="black" stroke-dasharray="4"/>`+"\n", plotMargin, width-plotMargin, y(reference), y(reference))
	}
	return out.String() + "</svg>\n"
}

func escaped(text string) string {
	var out strings.Builder
	if err := xml.EscapeText(&out, []byte(text)); err != nil {
		return "" // a strings.Builder takes everything
	}
	return out.String()
}
