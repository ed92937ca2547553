"""The drawings behind `_sprites`: letters for pixels, 16 by 16, and what colour a letter is.

A smaller drawing is a pattern that is repeated over the tile.
"""

from __future__ import annotations

COLOURS = {
    ".": (0, 0, 0, 0),  # nothing: what lies below shows
    "k": (32, 26, 36, 255),  # outline
    "w": (255, 255, 255, 255),
    "e": (172, 180, 198, 255),  # blank
    "o": (20, 22, 30, 255),  # outside
    "p": (40, 44, 58, 255),
    "s": (233, 214, 163, 255),  # sand
    "t": (217, 194, 139, 255),
    "u": (243, 229, 188, 255),
    "d": (62, 62, 74, 255),  # stone
    "g": (112, 114, 126, 255),
    "l": (148, 150, 162, 255),
    "C": (176, 240, 255, 255),  # gem
    "c": (52, 190, 240, 255),
    "b": (24, 104, 196, 255),
    "Q": (255, 178, 84, 255),  # food
    "O": (240, 124, 24, 255),
    "q": (190, 84, 10, 255),
    "m": (238, 232, 214, 255),  # bone
    "n": (120, 78, 44, 255),  # wood
    "L": (150, 206, 92, 255),  # leaves and grass
    "G": (84, 160, 62, 255),
    "h": (52, 112, 48, 255),
    "R": (255, 136, 124, 255),  # apple
    "r": (216, 40, 46, 255),
    "x": (150, 20, 36, 255),
    "V": (132, 196, 236, 255),  # water
    "W": (66, 140, 206, 255),
    "M": (104, 98, 48, 255),  # pollution
    "N": (70, 62, 34, 255),
    "P": (168, 186, 66, 255),
    "a": (110, 232, 255, 150),  # beams let the cell below through
    "A": (232, 252, 255, 235),
    "z": (255, 84, 40, 150),
    "Y": (255, 226, 60, 255),
}

BODIES = (
    ((190, 150, 250), (132, 76, 222), (90, 44, 166)),  # violet
    ((255, 150, 140), (222, 58, 58), (156, 28, 40)),  # red
    ((140, 224, 140), (48, 158, 74), (24, 108, 52)),  # green
    ((140, 180, 255), (50, 98, 226), (26, 60, 160)),  # blue
    ((255, 238, 130), (240, 196, 30), (186, 140, 10)),  # yellow
    ((255, 176, 224), (236, 90, 172), (174, 46, 120)),  # pink
    ((214, 160, 116), (146, 90, 50), (98, 56, 28)),  # brown
    ((132, 138, 148), (62, 66, 78), (36, 38, 48)),  # black
)
"""Light, middle and dark of each agent's body: the letters H, B and S."""

ZAPPED_BODY = ((226, 226, 230), (182, 184, 192), (136, 138, 150))

AGENT = """
................
.....kkkkkk.....
...kkHHHBBBkk...
..kHHHBBBBBBSk..
..kHBBBBBBBBSk..
.kHBwwwBBwwwBSk.
.kBBwkkBBwkkBSk.
.kBBwkkBBwkkBSk.
.kBBwwwBBwwwBSk.
.kBBBBBBBBBBBSk.
.kBBBBkkkkBBBSk.
..kBBBBBBBBBSk..
..kSBBBBBBBSSk..
...kSSkkkkSSk...
...kSSk..kSSk...
...kkkk..kkkk...
"""

ZAPPED = """
..YY............
..YYYkkkkkk..Y..
...kkHHHBBBkYYY.
..kHHHBBBBBBSY..
..kHBBBBBBBBSk..
.kHkBkBBBkBkBSk.
.kBBkBBBBBkBBSk.
.kBkBkBBBkBkBSk.
.kBBBBBBBBBBBSk.
.kBBBBkkkkBBBSk.
.kBBBkBBBBkBBSk.
Y.kBBBBBBBBBSk..
YYkSBBBBBBBSSk..
Y..kSSkkkkSSk...
...kSSk..kSSk...
...kkkk..kkkk...
"""

ART = {
    "blank": "e",
    "outside": """
ooop
oopo
opoo
pooo
""",
    "empty": """
ssssssssssssssss
sstsssssssssusss
ssssssssssssssss
sssssssustssssss
ssssssssssssssss
sussssssssssssts
ssssssssssssssss
sssstsssssssssss
ssssssssssusssss
ssssssssssssssss
stssssssssssssss
ssssssusssssssss
ssssssssssssstss
ssusssssstssssss
ssssssssssssssss
ssssssssssssusss
""",
    "wall": """
lllllldl
ggggggdl
ggggggdl
dddddddd
lldlllll
ggdlgggg
ggdlgggg
dddddddd
""",
    "gem": """
................
................
....kkkkkkkk....
...kCwCCccbbk...
..kCwCCCcccbbk..
.kCwCCCCccccbbk.
.kbbbbbbbbbbbbk.
.kCCCbCCccbccbk.
..kCCbCCccbcbk..
...kCCbCcbcbk...
...kCCbCcbcbk...
....kCCbbcbk....
.....kCbbbk.....
......kbbk......
.......kk.......
................
""",
    "food": """
...........kk...
..........kLGk..
......kk..kLGkkk
.....kLGkkLGkLGk
.....kkLGGGGGGk.
....kkkkGGGGkk..
...kQQOOkGGGGk..
..kQQOOOOkkkGGk.
..kQOOqqOOk.kkk.
..kQOOOOOOk.....
..kQqqOOOOk.....
.kQOOOOOOk......
.kQOOOqqk.......
.kQOOOkk........
.kOOkk..........
.kkk............
""",
    "bone": """
................
.........kkk....
........kwwmk...
........kwwmkkk.
........kwwmmmmk
.........kwmmmmk
........kwmmmmk.
.......kwmmkkk..
......kwmmk.....
..kkkkwmmk......
.kwwmmmmk.......
.kwwmmmk........
..kkkwmk........
....kwmk........
....kmmk........
.....kk.........
""",
    "river": """
WWWWWWWW
WWVVWWWW
WVWWVWWV
WWWWWVVW
WWWWWWWW
WWWWWWWW
VWWVVWWW
WVVWWWWW
""",
    "pollution": """
MMMMMMMMMMMMMMMM
MMMMMMNNNMMMMMMM
MPPMMNNNNNMMMPMM
PMMPMNNNNNMMPMPM
PMMPMMNNNMMMMPMM
MPPMMMMMMMMMMMMM
MMMMMMMMMMNNMMMM
MMMMMMMMMNNNNNMM
MMNNNMMMMNNNNNNM
MNNNNNMMMMNNNNMM
MNNNNNMMPMMMMMMM
MMNNNMMPMPMMMMMM
MMMMMMMMPMMMPPMM
MMMMMMMMMMMPMMPM
MMMPPMMMMMMPMMPM
MMMPPMMMMMMMPPMM
""",
    "grass": """
GGGGGGGGGGGGGGGG
GLGGGGGGGGGGGGGG
GGLGLGGGGGGGGGGG
GGLGLGGGGGGLGGGG
GGGLGGGGGGGGLGLG
GGGGGGGGGGGGLGLG
GGGGGGGGGGGGGLGG
GGGGGGhGhGGGGGGG
GGGGGGGhGGGGGGGG
GGGGGGGGGGGGGGGG
GGLGGGGGGGGGGGGG
GGGLGLGGGGGGLGGG
GGGLGLGGGGGGGLGL
GGGGLGGGGGGGGLGL
GGGGGGGGGhGhGGLG
GGGGGGGGGGhGGGGG
""",
    "apple_tree": """
.....hhhhhh.....
...hhLLGGGGhh...
..hLLGGGGLGGGh..
.hLLGGGGGGGGGGh.
.hLGGGhGGGLGGGh.
hLGGGGGGGGGGhGGh
hGGLGGGGhGGGGGGh
hGGGGGGGGGGGGGGh
hGGGhGGLGGGhGGhh
.hGGGGGGGGGGGGh.
.hhGGhhGGhhGhhh.
...hhhnnnnhhh...
......nnnn......
......nnnn......
.....nnnnnn.....
................
""",
    "apple": """
................
........kk......
.......knk.kk...
.......knkkLGk..
...kkkkknkLGk...
..krrrrknkrrkk..
.krRRrrrrrrrrxk.
.krRwRrrrrrrrxk.
.krRRrrrrrrrrxk.
.krrrrrrrrrrrxk.
.krrrrrrrrrrxxk.
..krrrrrrrrrxk..
..kxrrrrrrrxxk..
...kxxrrrxxxk...
....kkkkkkkk....
................
""",
    "clean_beam": """
aaaaaaaaaaaaaaaa
aaAaaaaaaaaaaaaa
aAAAaaaaaaaaAaaa
aaAaaaaaaaaaAaaa
aaaaaaaaaaAAAAAa
aaaaaaaaaaaaAaaa
aaaaaAaaaaaaAaaa
aaaaaAaaaaaaaaaa
aaaAAAAAaaaaaaaa
aaaaaAaaaaaaaAaa
aaaaaAaaaaaaAAAa
aaaaaaaaaaaaaAaa
aaaaaaaaaAaaaaaa
aaAaaaaaaaaaaaaa
aAAAaaaaaaaaaaaa
aaAaaaaaaaaaaaaa
""",
    "zap_beam": """
zzzzzzzzzzzzzzzz
zzzzzzzzYYYYzzzz
zzzzzzzYYYYzzzzz
zzzzzzYYYYzzzzzz
zzzzzYYYYzzzzzzz
zzzzYYYYzzzzzzzz
zzzYYYYYYYYzzzzz
zzYYYYYYYYzzzzzz
zzzzzzYYYzzzzzzz
zzzzzYYYzzzzzzzz
zzzzzYYzzzzzzzzz
zzzzYYzzzzzzzzzz
zzzzYzzzzzzzzzzz
zzzYzzzzzzzzzzzz
zzzzzzzzzzzzzzzz
zzzzzzzzzzzzzzzz
""",
}
