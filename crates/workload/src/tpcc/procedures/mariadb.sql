-- TPC-C's transactions as procedures of MariaDB.
--
-- Outside of a transaction each statement of a procedure would be one by itself, so a procedure
-- begins its transaction and ends it. Before that it takes back what a call may have left that was
-- killed: no handler runs then, and START TRANSACTION would commit it. What a procedure found, it
-- answers after the commit, when nobody waits for it any more.
--
-- A variable hides the column of its name, so what is read from a table goes into a ROW.

-- The customer in the middle of those of a last name.
CREATE OR REPLACE PROCEDURE tpcc_customer(w INTEGER, d INTEGER, name VARCHAR(16), OUT c INTEGER)
BEGIN
    DECLARE number INTEGER;
    DECLARE named TEXT;
    SELECT COUNT(*), GROUP_CONCAT(c_id ORDER BY c_first, c_id) INTO number, named FROM customer
    WHERE c_w_id = w AND c_d_id = d AND c_last = name;
    IF number = 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
    END IF;
    SET c = SUBSTRING_INDEX(SUBSTRING_INDEX(named, ',', (number + 1) DIV 2), ',', -1);
END

CREATE OR REPLACE PROCEDURE tpcc_new_order(
    w INTEGER, d INTEGER, c INTEGER, moment BIGINT, lines_wanted INTEGER, is_local INTEGER,
    items VARCHAR(200), suppliers VARCHAR(200), quantities VARCHAR(200))
BEGIN
    DECLARE of_warehouse ROW (w_tax INTEGER);
    DECLARE of_customer ROW (c_discount INTEGER, c_last VARCHAR(16), c_credit CHAR(2));
    DECLARE of_district ROW (d_next_o_id INTEGER, d_tax INTEGER);
    DECLARE of_item ROW (i_price BIGINT, i_name VARCHAR(24), i_data VARCHAR(50));
    DECLARE of_stock ROW (s_quantity INTEGER, s_dist CHAR(24), s_data VARCHAR(50));
    DECLARE place, item, supplier, quantity INTEGER;
    DECLARE listed TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR NOT FOUND
    BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
    END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    SELECT w_tax INTO of_warehouse FROM warehouse WHERE w_id = w;
    SELECT c_discount, c_last, c_credit INTO of_customer FROM customer
    WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    SELECT d_next_o_id, d_tax INTO of_district FROM district
    WHERE d_w_id = w AND d_id = d FOR UPDATE;
    UPDATE district SET d_next_o_id = of_district.d_next_o_id + 1 WHERE d_w_id = w AND d_id = d;
    INSERT INTO orders
        (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)
    VALUES (w, d, of_district.d_next_o_id, c, moment, NULL, lines_wanted, is_local);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (w, d, of_district.d_next_o_id);
    SET place = 1;
    WHILE place <= lines_wanted DO
        SET item = SUBSTRING_INDEX(SUBSTRING_INDEX(items, ',', place), ',', -1);
        SET supplier = SUBSTRING_INDEX(SUBSTRING_INDEX(suppliers, ',', place), ',', -1);
        SET quantity = SUBSTRING_INDEX(SUBSTRING_INDEX(quantities, ',', place), ',', -1);
        BEGIN
            DECLARE EXIT HANDLER FOR NOT FOUND
            BEGIN
                SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: unused item';
            END;
            SELECT i_price, i_name, i_data INTO of_item FROM item WHERE i_id = item;
        END;
        SELECT s_quantity,
            CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                ELSE s_dist_10 END,
            s_data
        INTO of_stock FROM stock WHERE s_w_id = supplier AND s_i_id = item FOR UPDATE;
        UPDATE stock SET
            s_quantity = IF(of_stock.s_quantity >= quantity + 10,
                of_stock.s_quantity - quantity, of_stock.s_quantity - quantity + 91),
            s_ytd = s_ytd + quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + IF(supplier <> w, 1, 0)
        WHERE s_w_id = supplier AND s_i_id = item;
        INSERT INTO order_line
            (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d,
            ol_quantity, ol_amount, ol_dist_info)
        VALUES (w, d, of_district.d_next_o_id, place, item, supplier, NULL,
            quantity, of_item.i_price * quantity, of_stock.s_dist);
        SET listed = CONCAT(listed, of_item.i_name, ',', of_item.i_price, ',',
            of_stock.s_quantity, ';');
        SET place = place + 1;
    END WHILE;
    COMMIT;
    SELECT of_warehouse.w_tax, of_customer.c_discount, of_customer.c_last, of_customer.c_credit,
        of_district.d_next_o_id, of_district.d_tax, listed;
END

CREATE OR REPLACE PROCEDURE tpcc_payment(
    w INTEGER, d INTEGER, of_w INTEGER, of_d INTEGER, c INTEGER, name VARCHAR(16),
    amount BIGINT, moment BIGINT)
BEGIN
    DECLARE of_warehouse ROW (w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20),
        w_city VARCHAR(20), w_state CHAR(2), w_zip CHAR(9));
    DECLARE of_district ROW (d_name VARCHAR(10), d_street_1 VARCHAR(20), d_street_2 VARCHAR(20),
        d_city VARCHAR(20), d_state CHAR(2), d_zip CHAR(9));
    DECLARE of_customer ROW (c_credit CHAR(2), c_first VARCHAR(16), c_middle CHAR(2),
        c_last VARCHAR(16), c_street_1 VARCHAR(20), c_street_2 VARCHAR(20), c_city VARCHAR(20),
        c_state CHAR(2), c_zip CHAR(9), c_phone CHAR(16), c_since BIGINT, c_credit_lim BIGINT,
        c_discount INTEGER, c_balance BIGINT);
    DECLARE past VARCHAR(500);
    DECLARE EXIT HANDLER FOR NOT FOUND
    BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
    END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
    SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip INTO of_warehouse
    FROM warehouse WHERE w_id = w;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
    SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip INTO of_district
    FROM district WHERE d_w_id = w AND d_id = d;
    IF c IS NULL THEN
        CALL tpcc_customer(of_w, of_d, name, c);
    END IF;
    SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
        c_phone, c_since, c_credit_lim, c_discount, c_balance
    INTO of_customer FROM customer
    WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c FOR UPDATE;
    IF of_customer.c_credit = 'BC' THEN
        SELECT c_data INTO past FROM customer
        WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c FOR UPDATE;
        SET past = LEFT(CONCAT_WS(' ', c, of_d, of_w, d, w, amount, past), 500);
        UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
            c_payment_cnt = c_payment_cnt + 1, c_data = past
        WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c;
    ELSE
        UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
            c_payment_cnt = c_payment_cnt + 1
        WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c;
    END IF;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (c, of_d, of_w, d, w, moment, amount,
        CONCAT(of_warehouse.w_name, '    ', of_district.d_name));
    COMMIT;
    SELECT of_warehouse.w_name, of_warehouse.w_street_1, of_warehouse.w_street_2,
        of_warehouse.w_city, of_warehouse.w_state, of_warehouse.w_zip,
        of_district.d_name, of_district.d_street_1, of_district.d_street_2,
        of_district.d_city, of_district.d_state, of_district.d_zip,
        c, of_customer.c_credit, of_customer.c_first, of_customer.c_middle, of_customer.c_last,
        of_customer.c_street_1, of_customer.c_street_2, of_customer.c_city, of_customer.c_state,
        of_customer.c_zip, of_customer.c_phone, of_customer.c_since, of_customer.c_credit_lim,
        of_customer.c_discount, of_customer.c_balance, past;
END

CREATE OR REPLACE PROCEDURE tpcc_order_status(
    w INTEGER, d INTEGER, c INTEGER, name VARCHAR(16))
BEGIN
    DECLARE of_customer ROW (c_balance BIGINT, c_first VARCHAR(16), c_middle CHAR(2),
        c_last VARCHAR(16));
    DECLARE of_order ROW (o_id INTEGER, o_entry_d BIGINT, o_carrier_id INTEGER);
    DECLARE listed TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR NOT FOUND
    BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
    END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    IF c IS NULL THEN
        CALL tpcc_customer(w, d, name, c);
    END IF;
    SELECT c_balance, c_first, c_middle, c_last INTO of_customer FROM customer
    WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    SELECT o_id, o_entry_d, o_carrier_id INTO of_order FROM orders
    WHERE o_w_id = w AND o_d_id = d AND o_c_id = c ORDER BY o_id DESC LIMIT 1;
    FOR line IN (
        SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = of_order.o_id)
    DO
        SET listed = CONCAT(listed, line.ol_i_id, ',', line.ol_supply_w_id, ',', line.ol_quantity,
            ',', line.ol_amount, ',', COALESCE(line.ol_delivery_d, ''), ';');
    END FOR;
    IF listed = '' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
    END IF;
    COMMIT;
    SELECT c, of_customer.c_balance, of_customer.c_first, of_customer.c_middle,
        of_customer.c_last, of_order.o_id, of_order.o_entry_d, of_order.o_carrier_id, listed;
END

CREATE OR REPLACE PROCEDURE tpcc_delivery(w INTEGER, carrier INTEGER, moment BIGINT)
BEGIN
    DECLARE d, number, c INTEGER;
    DECLARE amount BIGINT;
    DECLARE delivered TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR NOT FOUND
    BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
    END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    SET d = 1;
    WHILE d <= 10 DO
        BEGIN
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET number = NULL;
            SELECT no_o_id INTO number FROM new_order WHERE no_w_id = w AND no_d_id = d
            ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        END;
        IF number IS NOT NULL THEN
            DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = number;
            IF ROW_COUNT() <> 1 THEN
                SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
            END IF;
            SELECT o_c_id INTO c FROM orders
            WHERE o_w_id = w AND o_d_id = d AND o_id = number FOR UPDATE;
            UPDATE orders SET o_carrier_id = carrier
            WHERE o_w_id = w AND o_d_id = d AND o_id = number;
            UPDATE order_line SET ol_delivery_d = moment
            WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = number;
            SELECT SUM(ol_amount) INTO amount FROM order_line
            WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = number;
            IF amount IS NULL THEN
                SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
            END IF;
            UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = w AND c_d_id = d AND c_id = c;
            SET delivered = CONCAT(delivered, d, ',', number, ';');
        END IF;
        SET d = d + 1;
    END WHILE;
    COMMIT;
    SELECT delivered;
END

CREATE OR REPLACE PROCEDURE tpcc_stock_level(w INTEGER, d INTEGER, threshold INTEGER)
BEGIN
    DECLARE number, low INTEGER;
    DECLARE EXIT HANDLER FOR NOT FOUND
    BEGIN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tpcc: a row is missing';
    END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    SELECT d_next_o_id INTO number FROM district WHERE d_w_id = w AND d_id = d;
    SELECT COUNT(DISTINCT s_i_id) INTO low FROM order_line, stock
    WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= number - 20 AND ol_o_id < number
        AND s_w_id = w AND s_i_id = ol_i_id AND s_quantity < threshold;
    COMMIT;
    SELECT low;
END
