"""What a tune found, put into words and pictures: HTML, Markdown, terminal. Parent side, no torch."""
