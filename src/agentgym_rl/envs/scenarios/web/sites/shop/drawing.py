"""Pictures of products, drawn: `draw`.

Simple forms in the product's colour on a soft ground, at twice the size and then halved, which
makes smooth edges.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

SIZE = 300
_BIG = 2 * SIZE
Colour = tuple[int, int, int]
Pen = ImageDraw.ImageDraw
_SHADES = (0.72, 0.86, 1.12)
"""Shadow, side and light of a form, as factors of its colour."""


def draw(shape: str, colour: Colour, path: Path) -> None:
    """Draw a product and write it as JPEG."""
    hue, light, _ = colorsys.rgb_to_hls(*(part / 255 for part in colour))
    ground = colorsys.hls_to_rgb((hue + 0.08) % 1.0, 0.93 if light < 0.75 else 0.84, 0.28)
    picture = Image.new("RGB", (_BIG, _BIG), _rgb(ground))
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 440, _BIG, _BIG), fill=_shade(_rgb(ground), 0.94))
    picture.paste((60, 55, 50), (90, 400), mask=_shadow())
    _SHAPES[shape](ImageDraw.Draw(picture), colour)
    picture.resize((SIZE, SIZE), Image.Resampling.BOX).save(path, quality=80)


@cache
def _shadow() -> Image.Image:
    """Return the shadow below every product: the lower part of a picture."""
    shadow = Image.new("L", (440, 130), 0)
    ImageDraw.Draw(shadow).ellipse((30, 30, 410, 100), fill=90)
    return shadow.filter(ImageFilter.GaussianBlur(14))


def _rgb(parts: tuple[float, float, float]) -> Colour:
    red, green, blue = (round(255 * part) for part in parts)
    return red, green, blue


def _shade(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, round(part * factor)) for part in colour)
    return red, green, blue


def _dark(colour: Colour) -> Colour:
    return _shade(colour, _SHADES[0])


def _side(colour: Colour) -> Colour:
    return _shade(colour, _SHADES[1])


def _light(colour: Colour) -> Colour:
    return _shade(colour, _SHADES[2])


def _mug(pen: Pen, c: Colour) -> None:
    pen.ellipse((380, 220, 510, 400), outline=_side(c), width=30)
    pen.rounded_rectangle((150, 170, 430, 470), 40, fill=c)
    pen.rounded_rectangle((350, 190, 430, 470), 40, fill=_side(c))
    pen.ellipse((150, 140, 430, 210), fill=_light(c))
    pen.ellipse((170, 152, 410, 200), fill=_dark(c))


def _bowl(pen: Pen, c: Colour) -> None:
    pen.chord((110, 130, 490, 510), 0, 180, fill=c)
    pen.rectangle((240, 480, 360, 510), fill=_side(c))
    pen.ellipse((110, 270, 490, 370), fill=_light(c))
    pen.ellipse((135, 285, 465, 358), fill=_side(c))


def _plate(pen: Pen, c: Colour) -> None:
    pen.ellipse((100, 100, 500, 500), fill=_side(c))
    pen.ellipse((106, 94, 494, 490), fill=c)
    pen.ellipse((175, 165, 425, 420), fill=_light(c))
    pen.ellipse((195, 185, 405, 400), outline=_side(c), width=6)


def _pan(pen: Pen, c: Colour) -> None:
    pen.rounded_rectangle((400, 275, 570, 315), 18, fill=_dark(c))
    pen.ellipse((80, 190, 430, 470), fill=_side(c))
    pen.ellipse((80, 170, 430, 440), fill=c)
    pen.ellipse((115, 195, 395, 410), fill=_dark(c))


def _pot(pen: Pen, c: Colour) -> None:
    pen.rounded_rectangle((70, 290, 530, 325), 16, fill=_dark(c))
    pen.rounded_rectangle((130, 240, 470, 480), 30, fill=c)
    pen.rectangle((390, 260, 470, 460), fill=_side(c))
    pen.ellipse((130, 200, 470, 280), fill=_light(c))
    pen.ellipse((270, 165, 330, 215), fill=_dark(c))


def _kettle(pen: Pen, c: Colour) -> None:
    pen.arc((200, 70, 420, 330), 180, 360, fill=_dark(c), width=26)
    pen.polygon([(410, 330), (540, 220), (556, 240), (440, 410)], fill=_side(c))
    pen.ellipse((130, 190, 460, 490), fill=c)
    pen.chord((130, 190, 460, 490), 300, 60, fill=_side(c))
    pen.ellipse((215, 185, 375, 235), fill=_light(c))
    pen.ellipse((275, 160, 315, 200), fill=_dark(c))


def _bottle(pen: Pen, c: Colour) -> None:
    pen.rounded_rectangle((210, 180, 390, 490), 46, fill=c)
    pen.rounded_rectangle((335, 190, 390, 488), 40, fill=_side(c))
    pen.rectangle((255, 120, 345, 200), fill=_light(c))
    pen.rounded_rectangle((240, 80, 360, 135), 14, fill=_dark(c))


def _board(pen: Pen, c: Colour) -> None:
    pen.rounded_rectangle((140, 120, 460, 490), 40, fill=_side(c))
    pen.rounded_rectangle((140, 110, 452, 480), 40, fill=c)
    for x in (210, 280, 350, 410):
        pen.line((x, 130, x - 12, 470), fill=_side(c), width=6)
    pen.ellipse((275, 135, 320, 180), fill=_dark(c))


def _jar(pen: Pen, c: Colour) -> None:
    pen.rounded_rectangle((170, 210, 430, 490), 36, fill=c)
    pen.rounded_rectangle((360, 215, 430, 488), 30, fill=_side(c))
    pen.rounded_rectangle((190, 150, 410, 220), 16, fill=_dark(c))
    pen.rectangle((210, 310, 340, 400), fill=_light(c))


def _lamp(pen: Pen, c: Colour) -> None:
    pen.ellipse((190, 450, 410, 500), fill=_dark(c))
    pen.rectangle((290, 270, 312, 470), fill=_side(c))
    pen.polygon([(220, 110), (380, 110), (450, 290), (150, 290)], fill=c)
    pen.polygon([(330, 110), (380, 110), (450, 290), (360, 290)], fill=_side(c))
    pen.ellipse((150, 270, 450, 310), fill=(255, 240, 200))


def _cloth(pen: Pen, c: Colour) -> None:
    for number, y in enumerate((170, 250, 330, 410)):
        fill = c if number % 2 else _light(c)
        pen.rounded_rectangle((110, y, 490, y + 84), 40, fill=fill)
        pen.line((140, y + 62, 460, y + 62), fill=_side(c), width=8)


def _cushion(pen: Pen, c: Colour) -> None:
    pen.polygon([(120, 150), (300, 180), (480, 150), (450, 320), (480, 490), (300, 460),
                 (120, 490), (150, 320)], fill=c)  # fmt: skip
    pen.polygon([(150, 320), (300, 460), (480, 490), (120, 490)], fill=_side(c))
    pen.ellipse((285, 305, 315, 335), fill=_dark(c))


def _basket(pen: Pen, c: Colour) -> None:
    pen.arc((180, 90, 420, 400), 180, 360, fill=_dark(c), width=22)
    pen.polygon([(120, 250), (480, 250), (430, 490), (170, 490)], fill=c)
    for y in range(280, 490, 42):
        pen.line((130, y, 470, y), fill=_side(c), width=10)
    for x in range(160, 460, 50):
        pen.line((x, 255, x + (300 - x) // 8, 485), fill=_dark(c), width=5)


def _box(pen: Pen, c: Colour) -> None:
    pen.polygon([(120, 230), (340, 280), (340, 500), (120, 440)], fill=c)
    pen.polygon([(340, 280), (490, 220), (490, 420), (340, 500)], fill=_side(c))
    pen.polygon([(120, 230), (280, 170), (490, 220), (340, 280)], fill=_light(c))
    pen.line((210, 200, 420, 252), fill=_dark(c), width=14)


def _vase(pen: Pen, c: Colour) -> None:
    for x, y in ((250, 90), (300, 60), (360, 100)):
        pen.line((300, 240, x, y), fill=(92, 124, 84), width=9)
        pen.ellipse((x - 30, y - 24, x + 30, y + 30), fill=_light(c))
    pen.ellipse((180, 260, 420, 500), fill=c)
    pen.chord((180, 260, 420, 500), 300, 70, fill=_side(c))
    pen.rectangle((255, 190, 345, 290), fill=c)
    pen.ellipse((245, 175, 355, 208), fill=_dark(c))


def _clock(pen: Pen, c: Colour) -> None:
    pen.ellipse((110, 90, 490, 470), fill=_dark(c))
    pen.ellipse((130, 110, 470, 450), fill=(246, 244, 238))
    pen.ellipse((130, 110, 470, 450), outline=c, width=26)
    pen.line((300, 280, 300, 180), fill=_dark(c), width=12)
    pen.line((300, 280, 370, 310), fill=_dark(c), width=12)


def _tent(pen: Pen, c: Colour) -> None:
    pen.polygon([(60, 480), (300, 120), (540, 480)], fill=c)
    pen.polygon([(300, 120), (540, 480), (400, 480)], fill=_side(c))
    pen.polygon([(300, 210), (370, 480), (230, 480)], fill=_dark(c))
    pen.line((40, 492, 560, 492), fill=_dark(c), width=8)


def _lantern(pen: Pen, c: Colour) -> None:
    pen.arc((200, 60, 400, 260), 180, 360, fill=_dark(c), width=16)
    pen.rounded_rectangle((190, 150, 410, 210), 20, fill=c)
    pen.rectangle((215, 210, 385, 410), fill=(255, 236, 180))
    pen.rectangle((285, 210, 315, 410), fill=_light(c))
    pen.rounded_rectangle((180, 405, 420, 490), 24, fill=_side(c))


def _bag(pen: Pen, c: Colour) -> None:
    pen.arc((200, 70, 400, 330), 180, 360, fill=_dark(c), width=24)
    pen.rounded_rectangle((130, 180, 470, 495), 60, fill=c)
    pen.rounded_rectangle((380, 190, 470, 495), 50, fill=_side(c))
    pen.rounded_rectangle((190, 330, 410, 460), 30, fill=_light(c))
    pen.line((200, 365, 400, 365), fill=_dark(c), width=8)


def _planter(pen: Pen, c: Colour) -> None:
    for x in (180, 240, 300, 360, 420):
        pen.polygon([(300, 320), (x - 22, 130), (x + 26, 110)], fill=(98, 138, 92))
    pen.polygon([(160, 290), (440, 290), (400, 495), (200, 495)], fill=c)
    pen.polygon([(380, 290), (440, 290), (400, 495), (350, 495)], fill=_side(c))
    pen.rounded_rectangle((145, 260, 455, 315), 14, fill=_light(c))


def _helmet(pen: Pen, c: Colour) -> None:
    pen.pieslice((110, 150, 490, 590), 180, 360, fill=c)
    pen.pieslice((300, 150, 490, 590), 180, 360, fill=_side(c))
    for x in (200, 290, 380):
        pen.ellipse((x - 20, 210, x + 24, 330), fill=_dark(c))
    pen.rounded_rectangle((100, 350, 510, 400), 24, fill=_light(c))


def _book(pen: Pen, c: Colour) -> None:
    pen.polygon([(160, 130), (420, 100), (460, 470), (200, 500)], fill=_dark(c))
    pen.polygon([(175, 140), (430, 112), (468, 462), (213, 492)], fill=(245, 241, 230))
    pen.polygon([(150, 120), (410, 90), (448, 450), (188, 482)], fill=c)
    pen.line((185, 120, 222, 475), fill=_side(c), width=14)
    pen.line((250, 210, 380, 195), fill=_light(c), width=16)
    pen.line((256, 260, 350, 249), fill=_light(c), width=10)


def _pen(pen: Pen, c: Colour) -> None:
    for number, x in enumerate((180, 270, 360)):
        shade = (c, _light(c), _side(c))[number]
        pen.polygon([(x, 440), (x + 140, 120), (x + 180, 138), (x + 42, 458)], fill=shade)
        pen.polygon([(x, 440), (x + 42, 458), (x + 4, 500)], fill=_dark(c))


def _headphones(pen: Pen, c: Colour) -> None:
    pen.arc((130, 110, 470, 490), 180, 360, fill=_side(c), width=34)
    for x in (100, 400):
        pen.rounded_rectangle((x, 280, x + 100, 460), 46, fill=c)
        pen.rounded_rectangle((x + 20, 300, x + 80, 440), 30, fill=_dark(c))


def _speaker(pen: Pen, c: Colour) -> None:
    pen.rounded_rectangle((170, 100, 430, 500), 44, fill=c)
    pen.rounded_rectangle((360, 110, 430, 498), 40, fill=_side(c))
    for y, size in ((200, 60), (370, 95)):
        pen.ellipse((300 - size, y - size, 300 + size, y + size), fill=_dark(c))
        pen.ellipse((282, y - 18, 318, y + 18), fill=_light(c))


def _cable(pen: Pen, c: Colour) -> None:
    for size in (190, 150, 110):
        box = (300 - size, 300 - size, 300 + size, 300 + size)
        pen.ellipse(box, outline=c if size != 150 else _side(c), width=22)
    pen.rounded_rectangle((420, 430, 540, 490), 12, fill=_dark(c))
    pen.rectangle((540, 445, 566, 475), fill=(190, 190, 190))


def _keyboard(pen: Pen, c: Colour) -> None:
    pen.rounded_rectangle((60, 220, 540, 430), 26, fill=_dark(c))
    for row, y in enumerate((240, 302, 364)):
        for x in range(82 + 10 * row, 500, 52):
            pen.rounded_rectangle((x, y, x + 42, y + 48), 8, fill=c if x % 3 else _light(c))


def _mouse(pen: Pen, c: Colour) -> None:
    pen.ellipse((190, 130, 410, 490), fill=c)
    pen.chord((190, 130, 410, 490), 270, 90, fill=_side(c))
    pen.line((300, 132, 300, 290), fill=_dark(c), width=8)
    pen.rounded_rectangle((285, 190, 315, 260), 14, fill=_dark(c))


def _shirt(pen: Pen, c: Colour) -> None:
    pen.polygon([(200, 120), (110, 180), (60, 320), (140, 350), (170, 290), (170, 490), (430, 490),
                 (430, 290), (460, 350), (540, 320), (490, 180), (400, 120)], fill=c)  # fmt: skip
    pen.polygon([(350, 300), (430, 290), (430, 490), (370, 490)], fill=_side(c))
    pen.chord((230, 60, 370, 190), 0, 180, fill=_dark(c))


def _puzzle(pen: Pen, c: Colour) -> None:
    tones = (c, _light(c), _side(c), c)
    for number, (x, y) in enumerate(((130, 150), (305, 150), (130, 325), (305, 325))):
        pen.rounded_rectangle((x, y, x + 168, y + 168), 14, fill=tones[number])
    pen.ellipse((268, 205, 338, 260), fill=tones[0])
    pen.ellipse((268, 380, 338, 435), fill=tones[2])
    pen.ellipse((185, 285, 240, 352), fill=tones[1])


def _blocks(pen: Pen, c: Colour) -> None:
    for x, y, tone in ((110, 340, c), (270, 340, _side(c)), (190, 180, _light(c))):
        pen.rectangle((x, y, x + 150, y + 150), fill=tone)
        pen.polygon([(x + 150, y), (x + 190, y - 30), (x + 190, y + 120), (x + 150, y + 150)],
                    fill=_dark(c))  # fmt: skip
        pen.polygon([(x, y), (x + 40, y - 30), (x + 190, y - 30), (x + 150, y)], fill=_light(c))


_SHAPES: Mapping[str, Callable[[Pen, Colour], None]] = {
    "mug": _mug, "bowl": _bowl, "plate": _plate, "pan": _pan, "pot": _pot, "kettle": _kettle,
    "bottle": _bottle, "board": _board, "jar": _jar, "lamp": _lamp, "cloth": _cloth,
    "cushion": _cushion, "basket": _basket, "box": _box, "vase": _vase, "clock": _clock,
    "tent": _tent, "lantern": _lantern, "bag": _bag, "planter": _planter, "helmet": _helmet,
    "book": _book, "pen": _pen, "headphones": _headphones, "speaker": _speaker, "cable": _cable,
    "keyboard": _keyboard, "mouse": _mouse, "shirt": _shirt, "puzzle": _puzzle, "blocks": _blocks,
}  # fmt: skip
